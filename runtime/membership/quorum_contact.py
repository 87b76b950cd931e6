"""Whether this node is in contact with enough others to be of any use to clients (ADR 42).

A node that is cut off from its peers would go on to tell clients what it knows: that there are no
leaders. They would believe it, because it answers, and stay, although all other nodes go on without
it. So a node that no longer gets answers from a majority sends its clients away: at first those
that ask for metadata (REBOOTSTRAP_REQUIRED, KIP-1102); and once its leases are certainly over, all
of them: it closes their connections and accepts no new ones until it is in contact again.

Contact means that a PING was answered recently (by a PONG), so that a link that only works in one
direction does not count. The majority is that of the members of any group. A node that reaches a
majority of one group may be its master, and perhaps the only way to its partitions, so it stays
open; a node that reaches no majority is of no use. Groups that this node does not have count in the
same way, because it forwards to them and names their masters; it knows their members from the
registry.

Time is counted in ticks of at most a fifth of a second, both for the age of an answer and for the
silence after it: a node that was suspended itself has not waited, and must not take that for
silence of the others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from paxos.ids import MS, NodeId

LOOK_EVERY_NS: Final = 200 * MS
ANSWER_LASTS_NS: Final = 1_500 * MS
"""Seven PINGs without an answer: there is no contact with such a peer."""
BLINK_NS: Final = 500 * MS
"""Silence of this length sends clients away; one check at a bad moment does not."""
CLOSE_NS_LEAST: Final = 1_000 * MS
STEADY_NS: Final = 1_000 * MS
"""How long contact must last before clients are served again, so that a link that comes and goes
does not make clients come and go."""


@attrs.frozen
class QuorumView:
    """The answers of a node's peers, and the groups that they are members of."""

    me: NodeId
    answered: Mapping[NodeId, int]
    """When each peer last answered, by the boot clock."""
    groups: Iterable[Collection[NodeId]]
    """The members of each group that it knows."""

    def enough(self, peers: Collection[NodeId]) -> bool:
        """Whether these peers and this node are a majority of the members of any group."""
        there = {self.me, *peers}
        return any(2 * len(there & set(members)) > len(members) for members in self.groups)


class QuorumContact:
    """Decides when clients are sent away. A lease that was renewed with the last answers ends
    `lease_ns` after them."""

    def __init__(self, touch: Callable[[], QuorumView], lease_ns: int) -> None:
        self._touch = touch
        self._close_after_ns = max(CLOSE_NS_LEAST, lease_ns - ANSWER_LASTS_NS)
        self._looked_boot_ns: int | None = None
        self._waited_ns = 0
        """A clock that stops while this node is suspended."""
        self._heard: dict[NodeId, tuple[int, int]] = {}
        """Each peer's last answer: by the boot clock, and by `_waited_ns`."""
        self._silent_ns = -ANSWER_LASTS_NS
        """At the start, as if all had just answered."""
        self._steady_ns = 0
        self.cut_off = False
        """Clients that ask for metadata must ask other nodes."""
        self.cut_off_total = 0

    @property
    def closed(self) -> bool:
        """Whether clients must not be connected at all."""
        return self.cut_off and self._silent_ns >= self._close_after_ns

    def look(self, boot_ns: int) -> None:
        """Update the state; call it at least every LOOK_EVERY_NS."""
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
