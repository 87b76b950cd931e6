"""What the machines of this package want done by their driver (in the runtime, in the
simulator)."""

from typing import TypeAlias

import attrs

from broker.reads.stored_batch import Batch
from broker.transfer.messages import Answer, AskData, AskState, Question
from paxos.ids import GroupId, NodeId

# -- of the sink ----------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """Send a question to a source, or an answer to a sink."""

    to: NodeId
    message: Question | Answer


@attrs.frozen
class TierAll:
    """Move all of the group's batches from this node's log to the cold store; then
    `Sink.tiered`."""

    group: GroupId


@attrs.frozen
class Restart:
    """The partition's cold data ends below what the source still has: delete it.

    The data that follows begins at `offset`, or at the first offset of the batch that contains it.
    """

    uid: int
    offset: int


@attrs.frozen
class Append:
    """Append to the partition's cold data, durably; then `Sink.appended` with the size.

    The batches cover the offsets from `start` on: those missing between them were compacted away.
    """

    uid: int
    start: int
    batches: tuple[Batch, ...]
    size: int


@attrs.frozen
class Repair:
    """Replace the damaged batches from `start` on by these."""

    uid: int
    start: int
    end: int
    batches: tuple[Batch, ...]


@attrs.frozen
class Fetched:
    """The data of a `request_data` has been appended, durably."""

    group: GroupId
    uid: int
    end: int


@attrs.frozen
class NotFetched:
    """No peer has it any more, or not now; if it is still needed, it is requested again."""

    group: GroupId
    uid: int


@attrs.frozen
class Save:
    """All data is durable: write this state as the group's checkpoint; then `Sink.saved`."""

    group: GroupId
    chunks: tuple[bytes, ...]


@attrs.frozen
class Install:
    """The checkpoint is durable: take over its state; then `Sink.installed`."""

    group: GroupId
    chunks: tuple[bytes, ...]


SinkEffect: TypeAlias = (
    Send | TierAll | Restart | Append | Repair | Fetched | NotFetched | Save | Install
)


# -- of the source --------------------------------------------------------------------------------


@attrs.frozen
class Read:
    """Read what was asked for, in any thread; then `Source.was_read`."""

    to: NodeId
    ask: AskData


@attrs.frozen
class Open:
    """Read the group's newest checkpoint, in any thread; then `Source.opened`."""

    to: NodeId
    ask: AskState


SourceEffect: TypeAlias = Send | Read | Open
