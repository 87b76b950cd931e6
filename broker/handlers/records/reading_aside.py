"""What another thread does with a batch before it is appended: read it, and change its codec.

A topic with a `compression.type` of its own stores batches with that codec (ADR 52). Compressing
costs ten times as much as reading, so such a batch always goes this way, one at a time like all
that are read in the background, and is refused if it is too large afterwards. A batch that has the
codec already stays as it is, whatever its level. The records and all else in the header stay, so a
retry is recognized by its sequence as usual.
"""

from collections.abc import Mapping
from typing import NamedTuple

from broker.producers.batch_validation import check_in_background
from broker.requests.context import Broker
from broker.topic_configs import Storing, storing
from wire.error_codes import ErrorCode
from wire.records.batch import COMPRESSION_MASK, Batch, BatchError, BatchHeader
from wire.records.compression import recompressed
from wire.records.validation import Rules


class Aside(NamedTuple):
    """The work: which rules the records obey, how they are to be stored, in how many bytes."""

    rules: Rules
    changes: Storing | None
    bytes_max: int


class ReadBatch(NamedTuple):
    batch: Batch
    latest_ms: int
    """The greatest timestamp of its records."""


def another_codec(configs: Mapping[str, str], header: BatchHeader) -> Storing | None:
    """How a batch is to be stored that comes with another codec."""
    wanted = storing(configs) if configs else None
    if wanted is None or header.attributes & COMPRESSION_MASK == wanted.codec:
        return None
    return wanted


def read_aside(batch: Batch, aside: Aside, broker: Broker) -> ReadBatch | Exception:
    """In another thread; the only place that counts what is unpacked."""
    request_memory, unpacked_max = broker.request_memory, broker.config.unpacked_bytes_max
    if aside.changes is not None:
        unpacked_max //= 3  # the records, a copy that some codecs need, and the batch made of them
    if batch.header.attributes & COMPRESSION_MASK:
        request_memory.unpacked = broker.config.unpacked_bytes_max
    try:
        rest = broker.background.rest
        latest_ms = check_in_background(batch, aside.rules, rest, unpacked_max)
        if aside.changes is not None:
            batch = _changed(batch, aside.changes, aside.bytes_max, unpacked_max)
        return ReadBatch(batch, latest_ms)
    except Exception as error:  # noqa: BLE001  told to whoever asked
        return error
    finally:
        request_memory.unpacked = 0


def _changed(batch: Batch, changes: Storing, bytes_max: int, unpacked_max: int) -> Batch:
    changed = recompressed(batch, changes.codec, changes.level, unpacked_max)
    size = len(changed.data)
    if size > bytes_max:
        raise BatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{size} bytes with the topic's compression.type, at most {bytes_max} are allowed",
        )
    return changed
