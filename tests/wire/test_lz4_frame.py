"""LZ4 frames that some consumers can read and others never: refused before they are stored."""

import struct

import cramjam
import pytest

from tests.wire.test_record_check import LIMIT, NOW_MS, batch, record, refused, varint
from wire.error_codes import ErrorCode
from wire.records.batch import BatchError, Compression, iterate_records
from wire.records.compression import compress, decompress
from wire.records.lz4_frame import check_frame
from wire.records.validation import READABLE, check_records

ONE = record(0, value=b"\x90\x03" + b"v" * 200)
OTHER = record(1, value=b"\x90\x03" + b"w" * 200)
BOTH = ONE + OTHER
END = bytes(4)
SKIPPED = struct.pack("<II", 0x184D2A50, 4) + b"skip"
NOTHING_STORED = struct.pack("<I", 1 << 31)
NOTHING_COMPRESSED = struct.pack("<I", 1) + b"\0"


def frame(payload: bytes, *, linked: bool = False, checksum: bool = False) -> bytes:
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=checksum, block_linked=linked)
    compressor.compress(payload)
    return bytes(compressor.finish())


HEAD = bytes.fromhex("04224d18604082")
"""The head of a frame of independent blocks, without checksums."""


def block(payload: bytes) -> bytes:
    """A block that is stored uncompressed."""
    return struct.pack("<I", len(payload) | 1 << 31) + payload


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        (frame(ONE) + frame(OTHER), "more than one frame"),
        (frame(b"") + frame(BOTH), "more than one frame"),
        (frame(BOTH) + SKIPPED, "more than one frame"),
        (SKIPPED + frame(BOTH), "begin with a frame"),
        (frame(BOTH, linked=True), "refer to others"),
        (HEAD + NOTHING_STORED + block(BOTH) + END, "without contents"),
        (HEAD + block(ONE) + NOTHING_STORED + block(OTHER) + END, "without contents"),
        (HEAD + block(ONE) + NOTHING_COMPRESSED + block(OTHER) + END, "without contents"),
    ],
    ids=["two", "empty first", "skipped last", "skipped first", "linked", *["empty block"] * 3],
)
def test_what_java_does_not_read_to_its_end_is_refused(stored: bytes, what: str) -> None:
    """It decompresses to the right records, but not with Kafka's consumer, which would stop there
    for ever (tried with kafka-clients 4.1). Kafka's brokers accept none of these."""
    one = batch(stored, 2, codec=Compression.LZ4)
    assert decompress(one, LIMIT) == BOTH
    error = refused(one)
    assert error.code is ErrorCode.INVALID_RECORD
    assert what in str(error)


def test_a_dictionary_is_refused() -> None:
    """By its flag alone: the checksum of the head need not be right for that."""
    stored = HEAD[:4] + bytes([HEAD[4] | 1]) + HEAD[5:6] + bytes(5) + block(BOTH) + END
    assert "dictionary" in str(refused(batch(stored, 2, codec=Compression.LZ4)))


@pytest.mark.parametrize("cut", [1, 4, 5, 60, 10_000])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_frame_that_is_cut_short_is_refused(cut: int, checksum: bool) -> None:
    stored = frame(BOTH, checksum=checksum)[:-cut]
    error = refused(batch(stored, 2, codec=Compression.LZ4))
    assert error.code is ErrorCode.INVALID_RECORD
    with pytest.raises(BatchError, match=r"cut short|begin with a frame"):
        check_frame(memoryview(stored))


@pytest.mark.parametrize("checksum", [False, True])
def test_a_frame_of_many_blocks_is_taken(checksum: bool) -> None:
    """With and without checksums, compressed blocks and stored ones."""
    payload = b"".join(record(at, value=varint(1_000) + b"v" * 1_000) for at in range(300))
    one = batch(frame(payload, checksum=checksum), 300, codec=Compression.LZ4)
    assert check_records(one, READABLE, bytes_max=LIMIT) == NOW_MS
    stored = HEAD + block(ONE) + block(OTHER) + END
    assert check_records(batch(stored, 2, codec=3), READABLE, bytes_max=LIMIT) == NOW_MS


def test_what_was_stored_before_is_still_read() -> None:
    """Only new data is refused: our own reader accepts any frame."""
    one = batch(frame(ONE) + frame(OTHER), 2, codec=Compression.LZ4)
    assert [each.offset for each in iterate_records(one, decompress(one, LIMIT))] == [0, 1]
    with pytest.raises(BatchError):
        check_records(one, READABLE, bytes_max=LIMIT)


def test_our_own_frames_are_of_that_shape() -> None:
    stored = bytes(compress(bytearray(BOTH), Compression.LZ4))
    assert check_records(batch(stored, 2, codec=3), READABLE, bytes_max=LIMIT) == NOW_MS
