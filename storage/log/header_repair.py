"""Finding out what a record's header was before one byte of it was damaged.

A header that cannot be read does not tell whose record it was, so every group pays for it
(storage.log.walk). One wrong bit, or one wrong byte, can be found, because so much has to agree:
magic, place and the header's checksum, and then the checksum of the whole record and that of the
record before, neither of which takes part in the search. Garbage passes for such a header with a
chance of one in 10^15. Nothing is corrected on the disk, and no entry is read from it: the record
stays damaged, but it is known whose it was (docs/adr/0046).
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
    """Headers that differ from `head` in one byte and match the header's checksum."""
    wanted: int = RECORD.unpack(head)[1]
    wrong = wanted ^ crc32c(head[CHECKSUMS_BYTES:], seed)
    for at, damage in _syndromes().get(wrong, ()):
        whole = bytearray(head)
        whole[CHECKSUMS_BYTES + at] ^= damage
        yield bytes(whole)


@cache
def _syndromes() -> dict[int, list[tuple[int, int]]]:
    """Every damage of one byte, by how it changes the checksum. (A CRC is linear: the change does
    not depend on the content.)"""
    found: dict[int, list[tuple[int, int]]] = {}
    nothing = crc32c(bytes(_CHECKED_BYTES))
    for at in range(_CHECKED_BYTES):
        for damage in range(1, 256):
            content = bytearray(_CHECKED_BYTES)
            content[at] = damage
            found.setdefault(crc32c(content) ^ nothing, []).append((at, damage))
    return found
