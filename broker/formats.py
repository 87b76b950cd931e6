"""What each cluster version adds to the logs, and the one place that says what may be written.

Every kind of thing that is written where another node, or an older program on the same node, may
have to read it has a row here: the cluster version from which it may be written. A test compares
the rows with the kinds that exist, so that a new one without a row does not pass. The cluster
version is the registry's (`balancer.registry.versions`); it rises only when every node can read the
next one. Messages between nodes have a row as well: the version of the link from which they may be
sent (`runtime.membership.versions`).
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import attrs

from balancer.registry import codec as registry_codec
from balancer.registry.codec import encode_result
from balancer.registry.commands import Refusal, Refused
from broker.proposals.commands import HEAD, CommandKind
from paxos.entry import Buffer
from wire.software import CLUSTER_VERSION_BASE as BASE


class Place(Enum):
    """Where something is written. The value completes "a ... of kind N"."""

    ENTRY = "command in the log"
    REGISTRY = "command of the registry"
    COORDINATOR = "command of consumer groups"
    REGISTRY_IMAGE = "checkpoint of the registry"
    COORDINATOR_IMAGE = "checkpoint of consumer groups"
    CHUNK = "part of a checkpoint"
    """Kind << 8 | version of the kind."""
    LOG_RECORD = "record of the log"
    SEGMENT = "segment of the log"
    CHECKPOINT = "checkpoint file"
    COLD_SEGMENT = "cold segment"
    DIRECTORY = "data directory"
    PAXOS = "message of Paxos"
    """The format of all of them."""


def _from(version: int, *kinds: int) -> dict[int, int]:
    return dict.fromkeys(kinds, version)


ROWS: Final[Mapping[Place, Mapping[int, int]]] = {
    Place.ENTRY: _from(1, *range(1, 7)),
    Place.REGISTRY: {
        **_from(1, *range(1, 18), *range(20, 28), 30),
        **_from(2, 31, 32, 33),  # partitions and replicas where an operator wants them
        **_from(2, 34, 35, 36),  # the cluster version
        **_from(3, *range(37, 42)),  # security: listeners, credentials, rules, quotas
    },
    Place.COORDINATOR: {
        **_from(1, *range(1, 12)),
        **_from(2, 12, 13),  # groups with members of both protocols
    },
    Place.REGISTRY_IMAGE: {**_from(1, 7), **_from(2, 8), **_from(3, 9)},
    Place.COORDINATOR_IMAGE: _from(1, 6),
    Place.CHUNK: _from(1, 0x101, 0x201, 0x302, 0x401, 0x501, 0x601, 0x701, 0x801),
    Place.LOG_RECORD: _from(1, *range(1, 8)),
    Place.SEGMENT: _from(1, 3),
    Place.CHECKPOINT: _from(1, 1),
    Place.COLD_SEGMENT: _from(1, 1),
    Place.DIRECTORY: {**_from(1, 3), **_from(2, 4)},
    Place.PAXOS: _from(1, 3),
}
"""Only what is written today; formats of before that are still read have no row."""
RAISES: Final = 34
"""The command that raises the cluster version: it may be written as soon as that may rise."""


def needed(place: Place, kind: int) -> int | None:
    """The cluster version from which a kind may be written; None if it is not known."""
    return ROWS[place].get(kind)


@attrs.define
class FormatGate:
    """Whether something may be written now. `version` returns the cluster version, `waits_for` what
    it waits for to rise, in words."""

    version: Callable[[], int] = lambda: BASE
    waits_for: Callable[[], str] = lambda: ""

    def problem(self, place: Place, kind: int) -> str:
        """Why it may not be written; "" if it may."""
        since = needed(place, kind)
        if since is None:
            return f"a {place.value} of kind {kind} is not known to this version of Evenkeel"
        now = self.version()
        if since <= now or (place is Place.REGISTRY and kind == RAISES):
            return ""
        why = self.waits_for()
        return (
            f"this needs cluster version {since}, and the cluster is at {now}"
            f"{': ' + why if why else ''} (evenkeel cluster version)"
        )

    def refusal(self, chunk: Buffer) -> bytes | None:
        """The result of a registry command that may not be written, given its bytes."""
        if len(chunk) < HEAD.size or chunk[HEAD.size - 1] != CommandKind.REGISTRY:
            return None
        kind = registry_codec.kind_of(memoryview(chunk)[HEAD.size :])
        problem = self.problem(Place.REGISTRY, kind) if kind else ""
        return encode_result(Refused(Refusal.CLUSTER_VERSION, problem)) if problem else None
