"""The state of a replica's timers: when to ask, to try, to repeat, and when to rest.

All of it may be wrong, and no two values are chosen in a slot, and no two nodes act at a time; the
group is only slower, or busier, or without a master for longer. What a value here must not do is to
keep a group from going on for ever: that is what the worlds of the simulator demand (I10).
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
    """A core that knows what time does to it."""

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
        """Where we have proposed to take or renew the lease last."""
        self.progress_at = 0
        self.learn_at = 0
        self.vote_missing = False
        """The next slot is chosen at a ballot we did not vote at: only its value will help."""
        self.trimmed_boot_ns: int | None = None
        """When somebody told us last that its log begins beyond the end of ours."""
        self.rests_until_boot_ns = self.rests_until_wall_ns = 0
        """Before both there is nothing to do for `timers.tick`, unless something `wake`s us."""

    def wake(self) -> None:
        """Something has happened, or is about to: `timers.tick` has to look at all of it again."""
        self.rests_until_boot_ns = 0

    def tell_progress_soon(self) -> None:
        """How far we are is told in the next round, and not only now and then."""
        self.progress_at = 0
        self.wake()

    def step_down(self, now: Now, step: Step) -> None:
        """... and wait a moment before the next attempt."""
        super().step_down(now, step)
        self.election.back_off(now)

    def lease_in_flight(self) -> bool:
        return self.own_be_master in self.proposer.in_flight
