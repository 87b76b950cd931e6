"""What a node can read: versions of the link, and cluster versions; told when a link begins.

HELLO is compared exactly, and older nodes accept no other. So what is new follows in the frame
behind it, TERMS, of which they read the beginning and ignore the rest. A node that tells nothing is
an older one (`UNTOLD`). Each side then writes what both can read: the newest version of the link
that both know, and until the peer has told it, the oldest.

A peer is refused if there is no version of the link that both know, or if it cannot read the
cluster version (`problem`): what is in the logs would be too new for it, or too old.
"""

import struct
from typing import Final, NamedTuple

from balancer.registry.versions import SOFTWARE_CHARS_MAX, Reads
from paxos.codec import PeerError
from paxos.ids import NodeId
from wire.software import CLUSTER_VERSION_BASE as BASE
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST
from wire.software import CLUSTER_VERSION_OLDEST as OLDEST
from wire.software import VERSION

LINK_OLDEST: Final = 5
"""That of HELLO (runtime.membership.handshake.FORMAT): that of nodes from before this module."""
LINK_NEWEST: Final = 6
"""6: the node tells its versions in TERMS."""
_VERSIONS: Final = struct.Struct(">HHHHB")


class Versions(NamedTuple):
    """From the oldest to the newest that a node can read, of the link and of the logs."""

    link_oldest: int
    link_newest: int
    reads: Reads

    def encode(self) -> bytes:
        name = self.reads.software.encode()
        numbers = (self.link_oldest, self.link_newest, self.reads.oldest, self.reads.newest)
        return _VERSIONS.pack(*numbers, len(name)) + name

    @classmethod
    def decode(cls, body: memoryview) -> "Versions":
        """What a peer tells; further bytes are of a later version and ignored.

        Raises:
            PeerError: no node tells this.
        """
        if not len(body):
            return UNTOLD
        if len(body) < _VERSIONS.size:
            raise PeerError(f"versions of {len(body)} bytes")
        link_oldest, link_newest, oldest, newest, size = _VERSIONS.unpack_from(body)
        name = body[_VERSIONS.size : _VERSIONS.size + size]
        software = str(name, "utf-8", "replace")
        reads = Reads(oldest, newest, software)
        problem = reads.problem()
        if len(name) != size or problem or not 1 <= link_oldest <= link_newest:
            raise PeerError(f"versions that cannot be: {problem or 'of the link'}")
        return cls(link_oldest, link_newest, reads)


UNTOLD: Final = Versions(LINK_OLDEST, LINK_OLDEST, Reads(BASE, BASE, ""))
OURS: Final = Versions(LINK_OLDEST, LINK_NEWEST, Reads(OLDEST, NEWEST, VERSION))
assert len(VERSION) <= SOFTWARE_CHARS_MAX


def common_link(ours: Versions, theirs: Versions) -> int | None:
    """The version of the link that both write; None if there is none."""
    newest = min(ours.link_newest, theirs.link_newest)
    return newest if newest >= max(ours.link_oldest, theirs.link_oldest) else None


def described(reads: Reads) -> str:
    if not reads.software:
        return (
            "a version of Evenkeel from before there were cluster versions, which reads cluster "
            f"version {reads.newest}"
        )
    return (
        f"Evenkeel {reads.software}, which reads cluster versions {reads.oldest} to {reads.newest}"
    )


def problem(node: NodeId, ours: Versions, theirs: Versions, cluster_version: int) -> str:
    """Why a node cannot take part, and what to do; "" if it can. Both sides log it."""
    if common_link(ours, theirs) is None:
        return (
            f"node {node} speaks versions {theirs.link_oldest} to {theirs.link_newest} of the "
            f"link, this node {ours.link_oldest} to {ours.link_newest}: upgrade the older one, one "
            "minor version at a time (docs/upgrades.md)"
        )
    reads = theirs.reads
    if reads.newest < cluster_version:
        return (
            f"the cluster is at cluster version {cluster_version}, which never falls, and node "
            f"{node} runs {described(reads)}: start it with the version of Evenkeel that the other "
            "nodes run (docs/upgrades.md)"
        )
    if reads.oldest > cluster_version:
        return (
            f"the cluster is at cluster version {cluster_version}, and node {node} runs "
            f"{described(reads)}: raise the cluster version first (evenkeel cluster version), or "
            "start the node with an older version of Evenkeel (docs/upgrades.md)"
        )
    return ""
