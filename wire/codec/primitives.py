"""The few functions that generated codecs call: varints and tagged fields (KIP-482).

Generated code packs and unpacks fixed-size fields inline; see decoding.py and encoding.py.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from wire.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

_THREE_BYTES: Final = struct.Struct("BBB")

UVARINT_BYTES_MAX: Final = 5
TAGS_MAX: Final = 1000
"""Tagged fields in one section; Kafka itself uses fewer than ten."""
ITEMS_MAX: Final = 1 << 18
"""Elements in all arrays of one message: bounds the memory that a frame can make us allocate."""


class Malformed(Exception):
    """Raised in a codec, which knows the byte but not the field; turned into a ProtocolError."""


FAILURES: Final = (Malformed, struct.error, IndexError, UnicodeDecodeError)
"""Everything that reading hostile bytes can raise; anything else is a bug in the compiler."""


def bad_length(length: int, left: int) -> Malformed:
    return Malformed(f"a length of {length} with {left} bytes left")


def bad_count(count: int, left: int) -> Malformed:
    return Malformed(f"an array of {count} elements with {left} bytes left")


def more_uvarint(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Finish reading an unsigned varint; `first` is its first byte, which has its top bit set."""
    second = view[pos]
    if second < 0x80:
        return first & 0x7F | second << 7, pos + 1
    third = view[pos + 1]
    if third < 0x80:  # up to 2 MiB: the size of nearly every batch
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, pos + 2
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise Malformed(f"varint {value} does not fit 32 bits")
            return value, pos
    raise Malformed(f"varint longer than {UVARINT_BYTES_MAX} bytes")


def read_uvarint(view: memoryview, pos: int) -> tuple[int, int]:
    first = view[pos]
    if first < 0x80:
        return first, pos + 1
    return more_uvarint(view, pos + 1, first)


def put_uvarint(out: bytearray, value: int) -> None:
    assert 0 <= value <= 0xFFFFFFFF, f"{value} does not fit an unsigned varint"
    if 0x3FFF < value < 0x200000:  # the size of most batches
        out += _THREE_BYTES.pack(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
        return
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class TagReader(NamedTuple):
    """How to read one known tagged field, and the attribute to set."""

    name: str
    decode: Callable[[memoryview, int], object]


class TagWriter(NamedTuple):
    """How to write one known tagged field; it is left out when it has its default value."""

    tag: int
    name: str
    is_default: Callable[[Any], bool]
    encode: Callable[[Any], bytes]


def read_tags(
    view: memoryview, pos: int, count: int, message: object, known: dict[int, TagReader]
) -> int:
    """Read a tagged section whose first count byte was `count`; unknown tags are skipped."""
    if count > 0x7F:
        count, pos = more_uvarint(view, pos, count)
    if count > TAGS_MAX:
        raise Malformed(f"{count} tagged fields, at most {TAGS_MAX} are allowed")
    for _ in range(count):
        tag, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        stop = pos + size
        if stop > len(view):
            raise bad_length(size, len(view) - pos)
        reader = known.get(tag)
        if reader is not None:
            setattr(message, reader.name, reader.decode(view[:stop], pos))
        pos = stop
    return pos


def put_tags(out: bytearray, message: object, writers: tuple[TagWriter, ...]) -> None:
    """Write a tagged section with the fields of `message` that differ from their defaults."""
    fields = [
        (writer.tag, writer.encode(value))
        for writer in writers
        if not writer.is_default(value := getattr(message, writer.name))
    ]
    put_uvarint(out, len(fields))
    for tag, encoded in fields:
        put_uvarint(out, tag)
        put_uvarint(out, len(encoded))
        out += encoded


def explain(error: Exception, pos: int, title: str, paths: list[str]) -> ProtocolError:
    """Name the field that a generated decoder failed in, by the source line that failed. That costs
    nothing unless it fails.

    `paths[n]` is the field that line n + 1 of the generated function reads. `pos` is where the
    decoder was; a field that is read together with its neighbours may begin a few bytes later.
    """
    assert error.__traceback__ is not None
    path = paths[error.__traceback__.tb_lineno - 1]
    return ProtocolError(what_failed(error), f"{title}: {path}" if path else title, pos)


def what_failed(error: Exception) -> str:
    """Describe an exception of FAILURES."""
    if isinstance(error, Malformed):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"a string is not UTF-8: {error.reason}"
    return "cut short"
