"""Whether this node is in touch with enough others to be of any use to clients (ADR 42).

A node that was cut off from its peers goes on to tell clients what it knew: that nobody leads. They
believe it, for it answers, and so they stay although all others go on without it. Therefore a node
that gets no answers from a majority any more sends its clients away: at first those that ask who
leads what (REBOOTSTRAP_REQUIRED, KIP-1102), and when its leases are certainly over everyone: it
closes their connections and accepts no more, until it is in touch again.

In touch means that a question was answered of late (PING and PONG), so that a link that works in
one direction only counts for nothing. A majority of what: of the members of any group. A node that
reaches a majority of one group may be its master, perhaps the only way to its partitions, and stays
open; who reaches a majority of none has nothing to give. Groups that this node does not have count
in the same way, because it forwards and names their masters; of those it knows the registry's.

Time is counted in ticks, a fifth of a second at most for each, for how old an answer is as well as
for the silence after it: a node that was stopped itself has not waited, and must not blame the
others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from paxos.ids import MS, NodeId

LOOK_EVERY_NS: Final = 200 * MS
ANSWER_LASTS_NS: Final = 1_500 * MS
"""Seven questions without an answer: such a peer is not in touch."""
BLINK_NS: Final = 500 * MS
"""Of silence, so that one look at a bad moment sends nobody away."""
CLOSE_NS_LEAST: Final = 1_000 * MS
STEADY_NS: Final = 1_000 * MS
"""In touch again for so long, and a link that comes and goes does not make clients come and go."""


@attrs.frozen
class QuorumView:
    """Whom a node is in touch with, for what groups."""

    me: NodeId
    answered: Mapping[NodeId, int]
    """When each peer last answered, by the boot clock."""
    groups: Iterable[Collection[NodeId]]
    """The members of each group it knows of."""

    def enough(self, peers: Collection[NodeId]) -> bool:
        """Whether these peers and itself are a majority of the members of any group."""
        there = {self.me, *peers}
        return any(2 * len(there & set(members)) > len(members) for members in self.groups)


class QuorumContact:
    """A lease that was renewed with the last answers ends `lease_ns` after them."""

    def __init__(self, touch: Callable[[], QuorumView], lease_ns: int) -> None:
        self._touch = touch
        self._close_after_ns = max(CLOSE_NS_LEAST, lease_ns - ANSWER_LASTS_NS)
        self._looked_boot_ns: int | None = None
        self._waited_ns = 0
        """The clock that stands still while this node does."""
        self._heard: dict[NodeId, tuple[int, int]] = {}
        """Each peer's last answer: by the boot clock, and by `_waited_ns`."""
        self._silent_ns = -ANSWER_LASTS_NS
        """As if all had answered when it started."""
        self._steady_ns = 0
        self.cut_off = False
        """Clients that ask who leads what are to ask others."""
        self.cut_off_total = 0

    @property
    def closed(self) -> bool:
        """Clients are not to be connected at all."""
        return self.cut_off and self._silent_ns >= self._close_after_ns

    def look(self, boot_ns: int) -> None:
        """Every LOOK_EVERY_NS or sooner."""
        looked = self._looked_boot_ns
        passed = 0 if looked is None else min(boot_ns - looked, LOOK_EVERY_NS)
        if looked is not None and boot_ns - looked < LOOK_EVERY_NS // 2:
            return
        self._looked_boot_ns = boot_ns
        self._waited_ns += passed
        view = self._touch()
        if not view.enough(self._in_touch(view.answered, boot_ns, passed)):
            self._silent_ns += passed
            self._steady_ns = 0
        elif self.cut_off:
            self._steady_ns += passed
        else:
            self._silent_ns = 0
        if not self.cut_off and self._silent_ns >= BLINK_NS:
            self.cut_off = True
            self.cut_off_total += 1
        elif self.cut_off and self._steady_ns >= STEADY_NS:
            self.cut_off = False
            self._silent_ns = self._steady_ns = 0

    def _in_touch(
        self, answered: Mapping[NodeId, int], boot_ns: int, passed: int
    ) -> Collection[NodeId]:
        """The peers whose last answer still counts."""
        known = self._heard
        self._heard = {
            node: known[node]
            if node in known and known[node][0] == at
            else (at, self._waited_ns - min(boot_ns - at, passed))
            for node, at in answered.items()
        }
        oldest = self._waited_ns - ANSWER_LASTS_NS
        return [node for node, (_, heard) in self._heard.items() if heard > oldest]
