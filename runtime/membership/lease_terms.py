"""Whether all nodes have the same lease settings (`lease.*`).

The log contains the expiry of each lease. So settings that differ for a while, e.g. during a
rolling restart that changes them, break nothing as long as every node's clock is within the
smallest margin. But if they stay different, one node may rely on a margin that others do not keep:
so nodes exchange their settings on every new link, and log differences.

They have a frame of their own (TERMS), the first behind HELLO, with the versions that the node can
read at its end (runtime.membership.versions).
"""

import struct
from typing import Final, NamedTuple

from paxos.codec import PeerError
from paxos.ids import MS, NodeId
from paxos.timing import Timing
from runtime.system.journal import Journal

_TERMS: Final = struct.Struct(">QQQ")
TERMS_BYTES: Final = _TERMS.size
"""What follows them in the frame: runtime.membership.versions."""
MS_MAX: Final = 24 * 3600 * 1000
"""The longest time that a configuration allows (runtime.config.sections)."""


class LeaseTerms(NamedTuple):
    duration_ms: int
    renew_every_ms: int
    clock_margin_ms: int

    def encode(self) -> bytes:
        return _TERMS.pack(*self)

    @classmethod
    def of(cls, timing: Timing) -> "LeaseTerms":
        return cls(timing.lease_ns // MS, timing.renew_every_ns // MS, timing.margin_ns // MS)

    @classmethod
    def decode(cls, body: memoryview) -> "LeaseTerms":
        """Decode lease settings; further bytes are of a later version and ignored.

        Raises:
            PeerError: too short, or not possible in a configuration.
        """
        if len(body) < _TERMS.size:
            raise PeerError(f"lease settings of {len(body)} bytes")
        terms = cls(*_TERMS.unpack_from(body))
        if max(terms) > MS_MAX:
            raise PeerError(f"lease settings of {max(terms)} ms")
        return terms

    def unlike(self, other: "LeaseTerms") -> str:
        """The settings of `other` that differ, as in a configuration."""
        names = zip(self._fields, self, other, strict=True)
        return ", ".join(f"lease.{name}={theirs}" for name, ours, theirs in names if ours != theirs)


class PeerLeaseTerms:
    def __init__(self, ours: LeaseTerms, journal: Journal) -> None:
        self.ours = ours
        self._journal = journal
        self._theirs: dict[NodeId, LeaseTerms] = {}

    def hear(self, node: NodeId, theirs: LeaseTerms) -> None:
        before = self._theirs.get(node, self.ours)
        self._theirs[node] = theirs
        if theirs == before:
            return
        if theirs == self.ours:
            self._journal.info("lease settings are the same again", peer=node)
        else:
            self._journal.warning(
                "lease settings differ: give all nodes the same",
                peer=node,
                theirs=self.ours.unlike(theirs),
                ours=theirs.unlike(self.ours),
            )

    def drop(self, node: NodeId) -> None:
        """Forget a node that is no longer in the cluster."""
        self._theirs.pop(node, None)

    @property
    def differing(self) -> dict[NodeId, str]:
        """The nodes whose last known settings differ from ours, with the differences."""
        return {
            node: self.ours.unlike(theirs)
            for node, theirs in sorted(self._theirs.items())
            if theirs != self.ours
        }
