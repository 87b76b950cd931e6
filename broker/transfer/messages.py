"""The messages between a node that catches up (sink) and the one that helps it (source).

The sink asks, the source answers; every question has a number that its answer repeats, so answers
to questions of an earlier attempt, or of an earlier life, can be told from expected ones. Offsets
are Kafka's, slots are the Paxos group's. Encoding: `codec.py`.
"""

from enum import IntEnum
from typing import Final, TypeAlias

import attrs

from paxos.entry import Buffer
from paxos.ids import GroupId, Slot

PARTS_MAX: Final = 65_536
"""Partitions of one Paxos group in a Manifest."""
PAYLOAD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Size of one answer's payload: a batch is sent whole, and none is larger."""

ASKED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Data requested by one question: a sink asks for `sink.PULL_BYTES`."""


class RefusalReason(IntEnum):
    """Why a question is refused, and what the sink does about it (sink.py)."""

    BEHIND = 1
    """The source is not ahead of the sink, or not a member: ask another node."""
    BUSY = 2
    """It already helps too many, or is itself catching up: ask another node."""
    GONE = 3
    """The session has ended, or the offset is below the log start by now: ask what there is."""
    DAMAGED = 4
    """It cannot read what was asked for: ask another node."""


@attrs.frozen
class AskManifest:
    """What do you have of this group? The sink itself has applied up to this slot."""

    number: int
    group: GroupId
    applied: Slot


@attrs.frozen
class Part:
    """A partition's records: offsets from `log_start` up to, not including, `next_offset`."""

    uid: int
    log_start: int
    next_offset: int


@attrs.frozen
class Manifest:
    """`saved`: the slot of the source's newest checkpoint."""

    number: int
    group: GroupId
    saved: Slot
    parts: tuple[Part, ...]


@attrs.frozen
class AskData:
    """Asks for whole batches of a partition, from the one that contains `offset` on, at least
    one."""

    number: int
    group: GroupId
    uid: int
    offset: int
    bytes_max: int


@attrs.frozen
class Data:
    """Batches with their offsets and epochs; the next ones begin at `end`.

    `gaps`: the partition is compacted, and offsets may be missing between the batches.
    """

    number: int
    group: GroupId
    uid: int
    end: int
    gaps: bool
    payload: tuple[Buffer, ...]


@attrs.frozen
class AskState:
    """Asks for a piece of the group's state: of its chunk number `chunk`, from byte `at` on.

    The first piece of chunk 0 begins a new session, with the newest checkpoint there is.
    """

    number: int
    group: GroupId
    chunk: int
    at: int


@attrs.frozen
class State:
    """A piece of a chunk of `size` bytes; `last`: of the session's last chunk."""

    number: int
    group: GroupId
    chunk: int
    at: int
    size: int
    last: bool
    payload: tuple[Buffer, ...]


@attrs.frozen
class Refused:
    number: int
    group: GroupId
    why: RefusalReason


Question: TypeAlias = AskManifest | AskData | AskState
Answer: TypeAlias = Manifest | Data | State | Refused
Message: TypeAlias = Question | Answer
