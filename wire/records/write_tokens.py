"""Write tokens: header fields of a record batch that name its writer, micro-batch and chunk.

A streaming job that restarts runs its last micro-batch again, perhaps days later and on other
machines. So that nothing is appended twice, each record batch it writes says where it belongs: the
producer id is the *writer* (a job, or a part of it), and the *position* is the micro-batch, the
chunk within it, and whether more chunks follow. Kafka's idempotent producers do not help here:
their sequences count records, they get a new id at every start, and only five batches are
remembered. `broker.state_machine.writer_state` has the rule by which a partition judges tokens
(ADR 28).

    producer id    1 << 62, and 62 bits of a hash of the writer's name
    position       micro-batch (30 bits) | chunk (15) | more (1): its upper 15 bits travel as the
                   producer epoch, its lower 31 as the base sequence

Ids of idempotent producers are allocated from 0 on, and never get that high.
"""

import hashlib
from typing import Final, NamedTuple

FEATURE: Final = "evenkeel.write_tokens"
"""A supported feature in ApiVersions (KIP-584): this broker knows the rule."""
FEATURE_VERSION: Final = 1
FIRST_ID: Final = 1 << 62
BATCH_END: Final = 1 << 30
"""The limit of micro-batch numbers: nearly seven years of five micro-batches a second."""
CHUNK_END: Final = 1 << 15
_SEQUENCE_BITS: Final = 31
_SEQUENCE_MASK: Final = (1 << _SEQUENCE_BITS) - 1
_CHUNK_SHIFT: Final = 1
_BATCH_SHIFT: Final = 16


class Position(NamedTuple):
    """The place of a chunk; positions of one writer in a partition compare in writing order."""

    batch: int
    chunk: int
    more: bool
    """Further chunks of this micro-batch follow."""


class Token(NamedTuple):
    """The three fields of a record batch's header."""

    producer_id: int
    epoch: int
    sequence: int


def is_write_token(producer_id: int) -> bool:
    return producer_id >= FIRST_ID


def writer_id(*name: str | int) -> int:
    """The producer id of the writer with this name: the same on every machine, at any time."""
    text = "\0".join(str(part) for part in name)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return FIRST_ID | int.from_bytes(digest, "big") >> 2


def token_of(producer_id: int, position: Position) -> Token:
    """The token for a writer's chunk.

    Raises:
        ValueError: the number of the micro-batch or of the chunk is too high.
    """
    batch, chunk, more = position
    if not 0 <= batch < BATCH_END or not 0 <= chunk < CHUNK_END:
        raise ValueError(
            f"no token for chunk {chunk} of micro-batch {batch}: "
            f"at most {CHUNK_END:,} chunks and {BATCH_END:,} micro-batches"
        )
    number = batch << _BATCH_SHIFT | chunk << _CHUNK_SHIFT | more
    return Token(producer_id, number >> _SEQUENCE_BITS, number & _SEQUENCE_MASK)


def position_of(epoch: int, sequence: int) -> Position:
    """The position in a batch's header; both fields have passed `validate`."""
    number = epoch << _SEQUENCE_BITS | sequence
    chunk = number >> _CHUNK_SHIFT & CHUNK_END - 1
    return Position(number >> _BATCH_SHIFT, chunk, bool(number & 1))
