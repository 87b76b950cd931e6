"""Checking that LZ4 data has the one form that every consumer can read.

The format allows more than Kafka's Java client reads, and Kafka's brokers accept it: several
frames, skippable frames, blocks that refer to earlier ones, dictionaries. Java stops at the end of
the first frame, and takes an empty block for its end. Some consumers of the partition could read
records in such a form, and others never could.
"""

import struct
from typing import Final

from wire.error_codes import ErrorCode
from wire.records.batch import BatchError

_MAGIC: Final = b"\x04\x22\x4d\x18"
_HEAD_BYTES: Final = 7
"""Magic, flags, block size, and a checksum of them."""
_CONTENT_SIZE: Final = 0x08
_CONTENT_SIZE_BYTES: Final = 8
_CONTENT_CHECKSUM: Final = 0x04
_BLOCK_CHECKSUM: Final = 0x10
_CHECKSUM_BYTES: Final = 4
_DICTIONARY: Final = 0x01
_INDEPENDENT: Final = 0x20
_SIZE: Final = struct.Struct("<I")
_STORED: Final = 1 << 31
"""The bit in a block's size that means: not compressed."""
_NO_CONTENTS: Final = 0
"""A compressed block of only this byte is empty."""


def check_frame(payload: memoryview) -> None:
    """Check that the payload is exactly one frame of independent blocks.

    This only checks the structure: decompressing it checks its checksums and contents.

    Raises:
        BatchError: INVALID_RECORD if it is not.
    """
    size = len(payload)
    if size < _HEAD_BYTES or bytes(payload[: len(_MAGIC)]) != _MAGIC:
        raise _refused("does not begin with a frame")
    flags = payload[4]
    if not flags & _INDEPENDENT:
        raise _refused("has blocks that refer to others")
    if flags & _DICTIONARY:
        raise _refused("needs a dictionary")
    at = _HEAD_BYTES + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0)
    behind_block = _CHECKSUM_BYTES if flags & _BLOCK_CHECKSUM else 0
    while True:
        if at + _SIZE.size > size:
            raise _refused("is cut short")
        (length,) = _SIZE.unpack_from(payload, at)
        at += _SIZE.size
        if not length:
            break
        if length == _STORED or (length == 1 and at < size and payload[at] == _NO_CONTENTS):
            raise _refused("has a block without contents")
        at += (length & ~_STORED) + behind_block
    end = at + (_CHECKSUM_BYTES if flags & _CONTENT_CHECKSUM else 0)
    if end != size:
        raise _refused("is more than one frame" if end < size else "is cut short")


def _refused(what: str) -> BatchError:
    return BatchError(ErrorCode.INVALID_RECORD, f"LZ4 that {what}")
