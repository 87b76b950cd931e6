"""A record's header of which one byte is damaged: what it was.

A header that cannot be read says nothing of whose record it was, so every group pays for it
(storage.log.walk). One flipped bit, or one byte, can be found again, because so much has to agree
on it: magic, place and the header's checksum, and then the checksum of the whole record and that of
the record before, neither of which takes part in the search. What is garbage is taken for such a
header by one chance in 10^15. Nothing is corrected on the disk, and no entry is given out for it:
the record stays damaged, but it is known whose it was (docs/adr/0046).
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from crc32c import crc32c

from paxos.entry import ENTRY_BYTES_MAX
from storage.disk.files import File, read_around
from storage.format import (
    CHECKSUMS_BYTES,
    RECORD,
    RECORD_HEADER_BYTES,
    RecordFields,
    header_intact,
)

_CHECKED_BYTES: Final = RECORD_HEADER_BYTES - CHECKSUMS_BYTES


def repaired_header(
    file: File, offset: int, seed: int, chain: int | None, limit: int
) -> RecordFields | None:
    """What the header of the record at `offset` said; `chain` is the checksum of the record before,
    if that is known, and `limit` where the records end."""
    head = read_around(file, RECORD_HEADER_BYTES, offset)
    if len(head) < RECORD_HEADER_BYTES:
        return None
    for whole in _candidates(head, seed):
        fields: RecordFields = RECORD.unpack(whole)
        checksum, size, previous = fields[0], fields[5], fields[6]
        if (
            header_intact(memoryview(whole), offset, seed)
            and size <= min(ENTRY_BYTES_MAX, limit - offset - RECORD_HEADER_BYTES)
            and (chain is None or previous == chain)
        ):
            payload = read_around(file, size, offset + RECORD_HEADER_BYTES) if size else b""
            if crc32c(payload, crc32c(whole[CHECKSUMS_BYTES:], seed)) == checksum:
                return fields
    return None


def _candidates(head: bytes, seed: int) -> Iterator[bytes]:
    """Headers that differ in one byte, and that the header's checksum allows."""
    wanted: int = RECORD.unpack(head)[1]
    wrong = wanted ^ crc32c(head[CHECKSUMS_BYTES:], seed)
    for at, damage in _syndromes().get(wrong, ()):
        whole = bytearray(head)
        whole[CHECKSUMS_BYTES + at] ^= damage
        yield bytes(whole)


@cache
def _syndromes() -> dict[int, list[tuple[int, int]]]:
    """By how each damage of one byte changes the checksum: it is linear, whatever the content."""
    found: dict[int, list[tuple[int, int]]] = {}
    nothing = crc32c(bytes(_CHECKED_BYTES))
    for at in range(_CHECKED_BYTES):
        for damage in range(1, 256):
            content = bytearray(_CHECKED_BYTES)
            content[at] = damage
            found.setdefault(crc32c(content) ^ nothing, []).append((at, damage))
    return found
