"""The file of one partition in an export: its record batches as they were in the log, in order.

That is also what a log segment of Kafka holds. Each batch has its own checksum; the manifest has
one for the whole file. A file is read batch by batch, so its size does not matter.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import attrs

from cli.backup.manifest import ExportError, Part
from wire.framing import MIB
from wire.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    Batch,
    BatchHeader,
    is_intact,
    parse_header,
)

BATCH_BYTES_MAX: Final = 256 * MIB
"""More than any broker accepts: a damaged length must not become memory."""
READ_BYTES: Final = MIB


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


@attrs.define
class Tally:
    """What a file holds so far: the manifest's numbers, and the offset to continue from."""

    next_offset: int
    bytes: int = 0
    batches: int = 0
    records: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    hash: _Hash = attrs.field(factory=hashlib.sha256)

    def add(self, batch: Batch) -> None:
        header = batch.header
        self.next_offset = header.last_offset + 1
        self.bytes += len(batch.data)
        self.batches += 1
        self.hash.update(batch.data)
        if header.attributes & CONTROL_BIT:
            return
        self.records += header.record_count
        if header.record_count and header.max_timestamp_ms >= 0:
            time_ms = header.max_timestamp_ms
            self.oldest_ms = time_ms if self.oldest_ms is None else min(self.oldest_ms, time_ms)
            self.newest_ms = time_ms if self.newest_ms is None else max(self.newest_ms, time_ms)

    def store(self, part: Part) -> None:
        part.bytes, part.batches, part.records = self.bytes, self.batches, self.records
        part.oldest_ms, part.newest_ms = self.oldest_ms, self.newest_ms
        part.sha256 = self.hash.hexdigest()


class DamagedBatchError(ExportError):
    """What is at this place in the file is not a batch, or not the one that was written."""


def batches(path: Path, first: int = 0) -> Iterator[Batch]:
    """All batches, one at a time, with records from offset `first` on. (The first batch may begin
    before it: the topic was trimmed in its middle.)

    Raises:
        DamagedBatchError: at the first byte that does not belong to an intact batch in order.
    """
    at = expected = 0
    with path.open("rb") as file:
        while head := file.read(HEADER_BYTES):
            what = f"{path} is damaged at byte {at}"
            if len(head) < HEADER_BYTES:
                raise DamagedBatchError(f"{what}: a batch is cut short")
            header = parse_header(memoryview(head))
            if not HEADER_BYTES <= header.size <= BATCH_BYTES_MAX or header.magic != MAGIC:
                raise DamagedBatchError(f"{what}: that is not a batch")
            data = memoryview(head + file.read(header.size - HEADER_BYTES))
            batch = Batch(header, data)
            if len(data) < header.size:
                raise DamagedBatchError(f"{what}: a batch is cut short")
            if wrong := why_unusable(batch):
                raise DamagedBatchError(f"{what}: {wrong}")
            if header.base_offset < expected or header.last_offset < first:
                raise DamagedBatchError(f"{what}: offset {header.base_offset} is out of order")
            yield batch
            at += header.size
            expected = header.last_offset + 1


def why_unusable(batch: Batch) -> str:
    """What is wrong with a batch as a broker delivers it; empty if nothing is."""
    header: BatchHeader = batch.header
    if header.magic != MAGIC:
        return f"message format {header.magic}, only {MAGIC} is supported"
    if header.batch_length + LOG_OVERHEAD_BYTES != len(batch.data) or not is_intact(batch):
        return "a batch has a wrong checksum"
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        return (
            f"a batch of {header.record_count} records with {header.last_offset_delta + 1} places"
        )
    return ""


def resume(path: Path, first: int) -> Tally:
    """Continue a file: what is intact stays, and a tail that an interruption left is cut off."""
    tally = Tally(first)
    if path.exists():
        try:
            for batch in batches(path, first):
                tally.add(batch)
        except DamagedBatchError:
            os.truncate(path, tally.bytes)
    return tally


def check(directory: Path, part: Part, name: str) -> None:
    """Read the whole file and compare it with the manifest.

    Raises:
        ExportError: if it is missing, incomplete or damaged.
    """
    path = directory / name
    if not path.exists():
        raise ExportError(f"the export is incomplete: {path} is missing")
    size = path.stat().st_size
    if size != part.bytes:
        raise ExportError(
            f"the export is incomplete: {path} has {size} bytes, {part.bytes} were exported"
        )
    tally = Tally(part.first)
    for batch in batches(path, part.first):
        tally.add(batch)
    if tally.hash.hexdigest() != part.sha256 or tally.records != part.records:
        raise ExportError(f"{path} is damaged: its checksum is not the manifest's")
