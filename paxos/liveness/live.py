"""The state of a replica's timers: when to ask, to try, to repeat, and when to rest.

Any of it may be wrong without harm to safety: the group is only slower, or busier, or without a
master for longer. But no value here may stop a group for ever: the simulator's worlds demand
progress (I10).
"""

from collections.abc import Iterable

from paxos.ids import SLOT_ZERO, GroupId, Incarnation, NodeId, Now, Slot
from paxos.liveness.election import Dice, Election
from paxos.liveness.questions import Questions
from paxos.liveness.standstill import Standstill
from paxos.state.core import Core, Recovered
from paxos.step import Step
from paxos.timing import Timing


class Live(Core):
    """A core with timers."""

    def __init__(
        self,
        group: GroupId,
        me: NodeId,
        incarnation: Incarnation,
        members: Iterable[NodeId],
        timing: Timing,
        dice: Dice,
        *,
        heard: dict[NodeId, int],
        incarnations: dict[NodeId, Incarnation],
        questions: Questions | None,
        recovered: Recovered,
    ) -> None:
        super().__init__(
            group,
            me,
            incarnation,
            members,
            timing,
            heard=heard,
            incarnations=incarnations,
            recovered=recovered,
        )
        self.election = Election(timing=timing, dice=dice)
        self.questions = questions or Questions()
        self.standstill = Standstill()
        self.own_be_master: Slot = SLOT_ZERO
        """The slot of our last proposal to take or renew the lease."""
        self.progress_at = 0
        self.learn_at = 0
        self.vote_missing = False
        """The next slot is chosen at a ballot at which we have no vote: only its value helps."""
        self.trimmed_boot_ns: int | None = None
        """When a peer last told us that its log begins beyond the end of ours."""
        self.rests_until_boot_ns = self.rests_until_wall_ns = 0
        """Until both have passed, `timers.tick` has nothing to do unless something `wake`s us."""

    def wake(self) -> None:
        """Something has happened, or is about to: `timers.tick` has to look again."""
        self.rests_until_boot_ns = 0

    def step_down(self, now: Now, step: Step) -> None:
        """Also wait a moment before the next attempt."""
        super().step_down(now, step)
        self.election.back_off(now)

    def lease_in_flight(self) -> bool:
        return self.own_be_master in self.proposer.in_flight
