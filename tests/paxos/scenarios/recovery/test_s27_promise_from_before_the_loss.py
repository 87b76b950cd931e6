"""Scenario 27: a candidate sleeps in phase 1 while a node that promised it forgets and rejoins.

This takes five nodes: with up to four, the candidate itself is among those who must answer. P holds
the promise that A forgot. D, the third of P's quorum, has a gap, so it would not answer Behind; and
it has voted in everything that was chosen without A. P can miss only what A helps to choose from
then on. So A must not vote before D has closed its gap. (It did: two values were chosen in one
slot.)
"""

from paxos.ids import MS
from paxos.messages import Accept, Learned, Message, Prepare, Progress, Promise
from paxos.proposer import Role
from paxos.timing import WINDOW_MAX, Timing
from simulator.node.disk import RecordDisk
from simulator.script import Rule, Script

P, M, C, D, A = range(5)
MANY = WINDOW_MAX + 10


def asleep_in_phase_1(script: Script) -> Rule:
    """A has promised P; the Prepare to D is on its way, and the other Prepares are lost."""
    late = script.hold(Prepare, source=P, target=D)
    for node in (M, C):
        script.drop(Prepare, source=P, target=node)
    script.prepare(P)
    script.until(lambda: A in script.replica(P).proposer.promises)
    script.isolate(P)
    return late


def lose_everything(script: Script) -> None:
    script.crash(A)
    disk = script.node(A).disk
    assert isinstance(disk, RecordDisk)
    disk.lose_tail(10**6)
    script.boot(A)
    script.until(lambda: script.replica(A).rejoin is not None)


def test_a_promise_from_before_the_loss() -> None:
    script = Script(nodes=5, timing=Timing(prepare_timeout_ns=10**6 * MS))
    script.elect(M)
    script.write_all(M, 5)
    script.same_everywhere()
    gap = script.replica(D).learner.applied + 1

    def of_the_gap(message: Message) -> bool:
        return isinstance(message, Accept) and message.slot == gap

    script.drop(Accept, target=D, where=of_the_gap)
    blind = script.drop(Learned, target=D)
    script.until_acknowledged(script.write(M, 6))
    script.wait(50)
    assert script.replica(D).learner.applied < script.replica(P).learner.applied
    late = asleep_in_phase_1(script)
    lose_everything(script)
    script.write_all(M, MANY, start=7)
    script.wait(2_000)
    replica = script.replica(A)
    learner, rejoin = replica.learner, replica.rejoin
    assert rejoin is not None, "D would still promise P, from the gap on"
    assert learner.applied > rejoin.bar_of(replica.members) + WINDOW_MAX, (
        "A has come far enough itself"
    )

    for node in (P, D, A):
        script.replica(node).election.abstaining = True
    script.isolate(D)
    ticket = script.write(M, 7 + MANY)
    script.wait(300)
    assert not ticket.slot, "it would have taken A's vote"
    for node in (P, D, A):  # now these three are on their own
        script.wire.connect(P, node)
        for other in (M, C):
            script.wire.cut |= {(node, other), (other, node)}
    silence = script.drop(Learned, Progress)
    script.release(late)
    script.until(lambda: script.replica(P).proposer.role is Role.LEADER)
    assert any(one.source == D for one in script.sent(Promise))
    script.place(P, 1, client=201)
    script.wait(300)

    silence.lift()
    blind.lift()
    script.mend()
    for node in (P, D, A):
        script.replica(node).election.abstaining = False
    script.until(lambda: len(script.masters()) == 1)
    (master,) = script.masters()
    script.write_all(master, MANY, client=202)
    script.until(lambda: script.replica(A).rejoin is None)
    assert script.replica(A).acceptor.promised >= script.replica(master).proposer.ballot
    script.same_everywhere()
