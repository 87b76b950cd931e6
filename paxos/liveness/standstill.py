"""Whether the group makes progress without a member that is behind: then that one does not prepare.

A member that is behind knows leases that ended long ago, and not the one that runs. Its ballots win
nothing, for the members ahead of it answer Behind. But it has promised them itself, so it refuses
whatever the master sends, and the master has to begin anew. How long a member is behind proves
nothing: it may wait its turn among hundreds of groups (questions.py), or for large entries. But if
more slots are chosen elsewhere, even if only renewals, there is a master.
"""

from typing import Final

import attrs

from paxos.ids import SLOT_ZERO, Slot
from paxos.learner import Learner
from paxos.timing import Timing

UNANSWERED: Final = 20
"""In units of Timing.heard_ns: how long a peer that we asked for entries may claim ever more of
them and send none."""


@attrs.define(eq=False)
class Standstill:
    since: int = 0
    """When we last applied something, or were not behind. This and the others: boot time in ns."""
    group_since: int = 0
    """When we last learned that more slots are chosen."""
    asked_since: int | None = None
    """When we asked for entries, if we have applied nothing since."""
    _applied: Slot = SLOT_ZERO
    _chosen_to: Slot = SLOT_ZERO

    def begin(self, now_ns: int, learner: Learner) -> None:
        self.since = self.group_since = now_ns
        self._applied, self._chosen_to = learner.applied, learner.chosen_to

    def look(self, now_ns: int, learner: Learner) -> None:
        """Call at every tick."""
        behind = learner.behind
        if learner.applied != self._applied or not behind:
            self._applied, self.since, self.asked_since = learner.applied, now_ns, None
        if learner.chosen_to > self._chosen_to or not behind:
            self._chosen_to, self.group_since = learner.chosen_to, now_ns

    def rested(self, now_ns: int) -> None:
        """The timers rested, because nothing was missing."""
        self.since = now_ns

    def asked(self, now_ns: int) -> None:
        if self.asked_since is None:
            self.asked_since = now_ns

    def is_dead(self, now_ns: int, timing: Timing) -> bool:
        """Whether neither we nor the others make progress: a master would have renewed its lease
        meanwhile. Or a peer claims to have entries and does not send them."""
        patience_ns = max(timing.heard_ns, 2 * timing.renew_every_ns)
        if now_ns - self.since <= timing.heard_ns:
            return False
        if now_ns - self.group_since > patience_ns:
            return True
        asked = self.asked_since
        return asked is not None and now_ns - asked > UNANSWERED * timing.heard_ns
