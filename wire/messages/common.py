"""Structures of several messages: the hint that names a partition's new leader (KIP-951)."""

import attrs

from wire.codec.schema import int32, string


@attrs.define
class LeaderIdAndEpoch:
    """Sent only if it is newer than what the client used; clients ignore an older epoch."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@attrs.define
class NodeEndpoint:
    """The address of a new leader, so that the client needs no metadata request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+")
