"""Whether all nodes run their leases on the same terms (the settings `lease.*`).

The log carries the end of each lease, so terms that differ for a while, as when they are changed by
a rolling restart, break nothing as long as every node's clock is within the smallest margin. Left
so, a margin that one node was given and the others were not is a promise that nobody checks: nodes
tell each other their terms with every new link, and say where they differ.

A frame of its own (TERMS), for nodes of before would not know longer ones; it goes only to a peer
whose PING says that it knows it.
"""

import struct
from typing import Final, NamedTuple

from paxos.codec import PeerError
from paxos.ids import MS, NodeId
from paxos.timing import Timing
from runtime.system.journal import Journal

_TERMS: Final = struct.Struct(">QQQ")
MS_MAX: Final = 24 * 3600 * 1000
"""The longest that a configuration may say (runtime.config.sections)."""


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
        """What comes after these three is of a later version, and does not matter here.

        Raises:
            PeerError: too short, or no configuration has these.
        """
        if len(body) < _TERMS.size:
            raise PeerError(f"lease settings of {len(body)} bytes")
        terms = cls(*_TERMS.unpack_from(body))
        if max(terms) > MS_MAX:
            raise PeerError(f"lease settings of {max(terms)} ms")
        return terms

    def unlike(self, other: "LeaseTerms") -> str:
        """What the other one has differently, as it is written in a configuration."""
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
        """It is none of the cluster's nodes any more."""
        self._theirs.pop(node, None)

    @property
    def differing(self) -> dict[NodeId, str]:
        """The nodes with other terms, as they were heard last, and what differs."""
        return {
            node: self.ours.unlike(theirs)
            for node, theirs in sorted(self._theirs.items())
            if theirs != self.ours
        }
