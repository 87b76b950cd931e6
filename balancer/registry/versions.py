"""The cluster version: what may be written to the logs, because every node can read it.

It only rises. A node says which cluster versions it reads, over its links and, once all nodes can
read that, in the registry; the registry's master raises the cluster version when every member has
said that it reads the next one (runtime.membership.raising). `broker.formats` has the table of what
each version adds.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from balancer.registry.packing import FLAG, I32, STRING, U16, PackingError, mapping, record
from balancer.registry.records import NODES_MAX
from paxos.ids import NodeId
from wire.software import CLUSTER_VERSION_BASE as BASE

SOFTWARE_CHARS_MAX: Final = 64


class LaterVersionError(PackingError):
    """The log has what only a later version of this program can read: going on would mean another
    state than that of the other nodes."""


@attrs.frozen
class Reads:
    """The cluster versions that a node can read, and its program's version."""

    oldest: int
    newest: int
    software: str

    def problem(self) -> str:
        if not 1 <= self.oldest <= self.newest:
            return f"versions {self.oldest} to {self.newest}"
        if len(self.software) > SOFTWARE_CHARS_MAX or not self.software.isprintable():
            return f"the name of a version has at most {SOFTWARE_CHARS_MAX} printable characters"
        return ""


@attrs.frozen
class ClusterVersion:
    """As the registry has it. `reads`: what nodes have said, ascending by node."""

    version: int = BASE
    held: bool = False
    """An operator wants no automatic raise."""
    reads: Mapping[NodeId, Reads] = attrs.field(factory=dict)

    @property
    def unsaid(self) -> bool:
        """Whether it is that of a registry without any of this."""
        return self.version == BASE and not self.held and not self.reads

    def too_old(self, version: int, members: Iterable[NodeId]) -> str:
        """Which member has said that it cannot read `version`; "" if none has."""
        for node in members:
            known = self.reads.get(node)
            if known is not None and not known.oldest <= version <= known.newest:
                return (
                    f"node {node} runs Evenkeel {known.software}, which reads cluster versions "
                    f"{known.oldest} to {known.newest}"
                )
        return ""

    def noting(self, node: NodeId, reads: Reads) -> "ClusterVersion":
        return attrs.evolve(self, reads=dict(sorted({**self.reads, node: reads}.items())))

    def forgetting(self, node: NodeId) -> "ClusterVersion":
        rest = {one: reads for one, reads in self.reads.items() if one != node}
        return attrs.evolve(self, reads=rest)


READS: Final = record(Reads, U16, U16, STRING)
CLUSTER_VERSION: Final = record(ClusterVersion, U16, FLAG, mapping(I32, READS, NODES_MAX))
"""In images of the registry."""


# ---- commands -----------------------------------------------------------------------------------


@attrs.frozen
class RaiseClusterVersion:
    """From now on `version` may be written. Refused if it would fall."""

    version: int


@attrs.frozen
class HoldClusterVersion:
    """No automatic raise, or again automatic ones."""

    held: bool


@attrs.frozen
class NoteReads:
    """A node says about itself what it can read."""

    node: NodeId
    reads: Reads
