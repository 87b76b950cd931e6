"""What several messages share: the hint where a partition's leader has gone (KIP-951)."""

import attrs

from wire.codec.schema import int32, string


@attrs.define
class LeaderIdAndEpoch:
    """Sent only when known newer than what the client used; clients ignore an older epoch."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@attrs.define
class NodeEndpoint:
    """The address of a leader that was named, so that no metadata request is needed."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+")
