"""What the machines of this package want done by whoever runs them (the runtime, the simulator)."""

from typing import TypeAlias

import attrs

from broker.reads.stored_batch import Batch
from broker.transfer.messages import Answer, AskData, AskState, Question
from paxos.ids import GroupId, NodeId

# -- of the sink ----------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """A question for a source, or an answer to a sink."""

    to: NodeId
    message: Question | Answer


@attrs.frozen
class TierAll:
    """Move all of the group's batches from the own log to the cold store; then `Sink.tiered`."""

    group: GroupId


@attrs.frozen
class Restart:
    """The partition's cold data ends below what the source still has: forget it.

    What follows begins at `offset`, or at the first offset of the batch that contains it.
    """

    uid: int
    offset: int


@attrs.frozen
class Append:
    """Add to the partition's cold data, durably; then `Sink.appended` with its size.

    They stand for the offsets from `start` on: what is missing between them was compacted away.
    """

    uid: int
    start: int
    batches: tuple[Batch, ...]
    size: int


@attrs.frozen
class Repair:
    """Write these batches in the place of the damaged ones from `start` on."""

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
    """Nobody has it any more, or not now: whoever still needs it says so again."""

    group: GroupId
    uid: int


@attrs.frozen
class Save:
    """All data is durable: write this state as the group's checkpoint; then `Sink.saved`."""

    group: GroupId
    chunks: tuple[bytes, ...]


@attrs.frozen
class Install:
    """The checkpoint is durable: take the state over; then `Sink.installed`."""

    group: GroupId
    chunks: tuple[bytes, ...]


SinkEffect: TypeAlias = (
    Send | TierAll | Restart | Append | Repair | Fetched | NotFetched | Save | Install
)


# -- of the source --------------------------------------------------------------------------------


@attrs.frozen
class Read:
    """Read what is asked for, in any thread; then `Source.was_read`."""

    to: NodeId
    ask: AskData


@attrs.frozen
class Open:
    """Read the group's newest checkpoint, in any thread; then `Source.opened`."""

    to: NodeId
    ask: AskState


SourceEffect: TypeAlias = Send | Read | Open
