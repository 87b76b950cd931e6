"""Many groups side by side on one node: one Step for all of them, joined renewals.

The groups share what is known of peers (when a node was last heard, which incarnation it runs), one
Step per round (so one fsync and one frame per peer), and the moment of renewal: when one lease of
this node is due, the node also renews all that would be due soon.
"""

from collections.abc import Iterable, Iterator

from paxos import validation
from paxos.changes import doubt
from paxos.ids import GroupId, Incarnation, NodeId, Now
from paxos.liveness import mastership, progress, rests, timers
from paxos.liveness.election import Dice
from paxos.liveness.questions import Questions
from paxos.messages import Message
from paxos.replica import Replica
from paxos.state.core import Recovered
from paxos.statistics import GroupStatistics
from paxos.step import Notice, Step
from paxos.timing import Timing


class MultiGroup:
    def __init__(self, me: NodeId, incarnation: Incarnation, timing: Timing, dice: Dice) -> None:
        self.me, self.incarnation, self.timing = me, incarnation, timing
        self._dice = dice
        self.heard: dict[NodeId, int] = {}
        """Boot-clock time at which each node was last heard, by any group or by the link."""
        self.incarnations: dict[NodeId, Incarnation] = {me: incarnation}
        self.replicas: dict[GroupId, Replica] = {}
        self.questions = Questions()
        self._strangers: set[NodeId] = set()
        """Nodes that sent messages for a group we do not have; each was reported once."""

    def add(
        self, group: GroupId, members: Iterable[NodeId], recovered: Recovered | None = None
    ) -> Replica:
        assert group not in self.replicas
        replica = Replica(
            group,
            self.me,
            self.incarnation,
            members,
            self.timing,
            self._dice,
            heard=self.heard,
            incarnations=self.incarnations,
            questions=self.questions,
            recovered=recovered,
        )
        self.replicas[group] = replica
        return replica

    def remove(self, group: GroupId) -> None:
        """This node is no longer a member of the group, and forgets it."""
        del self.replicas[group]
        self.questions.forget(group)

    def peer_up(self, now: Now, node: NodeId, incarnation: Incarnation) -> None:
        """A link to this incarnation of `node` came up: whatever it missed is sent again soon."""
        self.heard[node] = now.boot_ns
        reborn = self.incarnations.get(node) != incarnation
        self.incarnations[node] = incarnation
        self._strangers.discard(node)
        for replica in self.replicas.values():
            replica.proposer.send_again()
            progress.link_is_up(replica, node, reborn=reborn)
            if reborn:  # with another log, perhaps
                doubt.forget(replica, node)

    def on_message(self, now: Now, sender: NodeId, message: Message, step: Step) -> None:
        """Raises PeerError for a message that no honest member sends, and changes nothing then."""
        self.heard[sender] = now.boot_ns
        replica = self.replicas.get(message.group)
        if replica is not None:
            validation.check(replica, sender, message)
            replica.on_message(now, sender, message, step)
        elif sender not in self._strangers:  # once: it sends such messages all the time
            self._strangers.add(sender)
            step.notices.append(Notice(message.group, "unknown-group", f"from node {sender}"))

    def tick(self, now: Now, step: Step) -> None:
        replicas = self.replicas.values()
        awake = [replica for replica in replicas if not rests.rests(replica, now)]
        renewing = any(self._renews(replica, now) for replica in awake)
        for replica in replicas if renewing else awake:
            timers.tick(replica, now, step, renew_early=renewing)
            rests.rest(replica, now)

    def statistics(self, now: Now) -> Iterator[GroupStatistics]:
        for replica in self.replicas.values():
            yield replica.statistics(now)

    def _renews(self, replica: Replica, now: Now) -> bool:
        return (
            replica.lease.held_by(self.me, self.incarnation)
            and mastership.renewal_due(replica, now)
            and replica.ready()
        )
