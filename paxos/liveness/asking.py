"""How a replica asks its peers: for entries, and for what they remember of it (questions.py)."""

from paxos.ids import NodeId, Now, Slot
from paxos.liveness.live import Live
from paxos.messages import ASK_PROGRESS, Learn
from paxos.step import Send, Step
from paxos.timing import CHOSEN_AHEAD_MAX


def ask_to_learn(replica: Live, now: Now, node: NodeId, step: Step) -> None:
    """Ask for the entries after our applied prefix, unless a question is under way."""
    until_ns = now.boot_ns + replica.timing.learn_timeout_ns
    if replica.questions.may_ask(now.boot_ns, replica.group, node, until_ns):
        replica.learn_at = until_ns
        replica.peer(node).asked = True
        replica.standstill.asked(now.boot_ns)
        step.before.append(Send(node, Learn(replica.group, replica.learner.applied)))


def was_taught(replica: Live, now: Now) -> None:
    """An answer had entries for us: the next gap need not wait until this question times out."""
    replica.learn_at = now.boot_ns


def had_nothing(replica: Live, now: Now, node: NodeId) -> None:
    """If we asked this node, its answer had no entries for us: ask another one, unless all have
    said so. Then entries are under way, and we wait as for an answer."""
    if replica.questions.answered(replica.group, node):
        replica.peer(node).had_nothing_after = replica.learner.applied
        if who_may_have_more(replica):
            replica.learn_at = now.boot_ns


def who_may_have_more(replica: Live) -> list[NodeId]:
    """Those who have not answered that they have no entries after our applied prefix."""
    applied = replica.learner.applied
    others = replica.others_to_ask()
    return [node for node in others if replica.peer(node).had_nothing_after != applied]


def ask_what_they_remember(replica: Live, now: Now, step: Step) -> None:
    """Ask each peer whose answer we still need, unless one is outstanding."""
    patience_ns = replica.timing.learn_timeout_ns
    for node in dict.fromkeys([*replica.others_to_ask(), *replica.alleged]):
        peer = replica.peer(node)
        since = peer.questioned_boot_ns
        if node in replica.verified and node not in replica.alleged:
            continue
        if since is None or now.boot_ns - since >= patience_ns:
            peer.questioned_boot_ns = now.boot_ns
            step.before.append(Send(node, Learn(replica.group, ASK_PROGRESS)))


def may_be_an_answer(replica: Live, node: NodeId, last: Slot) -> bool:
    """Whether entries up to `last` may answer a question of ours: only a node that we asked sends
    any, and they begin where our applied prefix ended then."""
    return replica.peer(node).asked and last <= replica.learner.applied + CHOSEN_AHEAD_MAX
