"""Bytes for the registry: a record is a tuple of fields, a union is a kind byte and a record.

The registry's commands, results and snapshots are small and rare (they live on group 0's log), so
the codec is built from tables instead of being written out by hand: one line per type, and one
place that checks lengths and counts before it creates anything. Every value has exactly one
encoding (maps are sorted by key, booleans are 0 or 1, nothing may follow), so equal states on two
nodes are equal bytes. Reading arbitrary bytes gives a value or `PackingError`, never another
exception.
"""

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import attrs

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=IntEnum)

STRING_BYTES_MAX: Final = 32_767
"""Kafka's own limit, wider than any rule of the registry: a rule refuses with a reason code."""


class PackingError(ValueError):
    """The bytes do not encode such a value, or the value does not fit its field."""


class Reader:
    """A cursor over received bytes that refuses to run past their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise PackingError(f"cut short: {size} bytes wanted at {self._at} of {len(self._data)}")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def finish(self) -> None:
        if self._at != len(self._data):
            raise PackingError(f"{len(self._data) - self._at} bytes too many")


@attrs.frozen
class Field(Generic[T]):
    """How one value is written to and read from bytes."""

    write: Callable[[bytearray, T], None]
    read: Callable[[Reader], T]


def encode(field: Field[T], value: T) -> bytes:
    """The one encoding of `value`.

    Raises:
        PackingError: if the value does not fit (a number out of range, too many elements).
    """
    out = bytearray()
    try:
        field.write(out, value)
    except (struct.error, UnicodeEncodeError) as error:
        raise PackingError(str(error)) from error
    return bytes(out)


def decode(field: Field[T], data: bytes | memoryview) -> T:
    """Read exactly one value.

    PackingError: if the bytes are anything but exactly one value.
        PackingError: if the bytes are anything else than one value.
    """
    reader = Reader(data)
    value = field.read(reader)
    reader.finish()
    return value


def number(layout: str) -> Field[Any]:
    """One integer in struct notation (`Any`: it also serves the NewTypes of paxos.ids)."""
    packer = struct.Struct(">" + layout)

    def write(out: bytearray, value: int) -> None:
        out += packer.pack(value)

    def read(reader: Reader) -> int:
        value: int = packer.unpack(reader.take(packer.size))[0]
        return value

    return Field(write, read)


U8: Final = number("B")
U16: Final = number("H")
U32: Final = number("I")
I32: Final = number("i")
I64: Final = number("q")


def _write_flag(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def _read_flag(reader: Reader) -> bool:
    value = reader.take(1)[0]
    if value > 1:
        raise PackingError(f"a flag is 0 or 1, not {value}")
    return value == 1


FLAG: Final = Field(_write_flag, _read_flag)


def _write_string(out: bytearray, value: str) -> None:
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise PackingError(f"a string of {len(data)} bytes: at most {STRING_BYTES_MAX}")
    out += len(data).to_bytes(2, "big")
    out += data


def _read_string(reader: Reader) -> str:
    size = int.from_bytes(reader.take(2), "big")
    if size > STRING_BYTES_MAX:
        raise PackingError(f"a string of {size} bytes: at most {STRING_BYTES_MAX}")
    try:
        return str(reader.take(size), "utf-8")
    except UnicodeDecodeError as error:
        raise PackingError(str(error)) from error


STRING: Final = Field(_write_string, _read_string)


def fixed(size: int) -> Field[bytes]:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) != size:
            raise PackingError(f"{len(value)} bytes where {size} belong")
        out += value

    return Field(write, lambda reader: bytes(reader.take(size)))


def enum(kind: type[E]) -> Field[E]:
    def read(reader: Reader) -> E:
        value = reader.take(1)[0]
        try:
            return kind(value)
        except ValueError as error:
            raise PackingError(str(error)) from error

    return Field(lambda out, value: out.append(value), read)


def optional(inner: Field[T]) -> Field[T | None]:
    def write(out: bytearray, value: T | None) -> None:
        out.append(0 if value is None else 1)
        if value is not None:
            inner.write(out, value)

    return Field(write, lambda reader: inner.read(reader) if _read_flag(reader) else None)


def _read_count(reader: Reader, count_max: int) -> int:
    count = int.from_bytes(reader.take(4), "big")
    if count > count_max:
        raise PackingError(f"{count} elements: at most {count_max}")
    return count


def _write_count(out: bytearray, count: int, count_max: int) -> None:
    if count > count_max:
        raise PackingError(f"{count} elements: at most {count_max}")
    out += count.to_bytes(4, "big")


def sequence(inner: Field[T], count_max: int) -> Field[tuple[T, ...]]:
    def write(out: bytearray, value: tuple[T, ...]) -> None:
        _write_count(out, len(value), count_max)
        for element in value:
            inner.write(out, element)

    def read(reader: Reader) -> tuple[T, ...]:
        return tuple(inner.read(reader) for _ in range(_read_count(reader, count_max)))

    return Field(write, read)


def mapping(key: Field[K], value: Field[V], count_max: int) -> Field[Mapping[K, V]]:
    """Sorted by key, each key once: a mapping has one encoding, in whatever order it was filled."""

    def write(out: bytearray, items: Mapping[K, V]) -> None:
        _write_count(out, len(items), count_max)
        for one in sorted(items):  # type: ignore[type-var]  # keys are ints or strings
            key.write(out, one)
            value.write(out, items[one])

    def read(reader: Reader) -> Mapping[K, V]:
        items: dict[K, V] = {}
        previous: Any = None
        for _ in range(_read_count(reader, count_max)):
            one: Any = key.read(reader)  # Any: ordered, like `previous`
            if previous is not None and one <= previous:
                raise PackingError("the keys of a mapping must ascend")
            items[one] = value.read(reader)
            previous = one
        return items

    return Field(write, read)


def record(kind: type[T], *fields: Field[Any]) -> Field[T]:
    """An attrs class as its fields, in the order of their definition."""
    names = tuple(kind.__annotations__)
    assert len(names) == len(fields), f"{kind.__name__} has {names}, {len(fields)} fields given"

    def write(out: bytearray, value: T) -> None:
        for name, field in zip(names, fields, strict=True):
            field.write(out, getattr(value, name))

    def read(reader: Reader) -> T:
        return kind(**{name: field.read(reader) for name, field in zip(names, fields, strict=True)})

    return Field(write, read)


def opening(kind: type[T], *fields: Field[Any]) -> Field[T]:
    """An attrs class in the format of an earlier version: its first fields; the others are
    defaults."""
    names = tuple(kind.__annotations__)[: len(fields)]

    def write(out: bytearray, value: T) -> None:
        for name, field in zip(names, fields, strict=True):
            field.write(out, getattr(value, name))

    def read(reader: Reader) -> T:
        return kind(**{name: field.read(reader) for name, field in zip(names, fields, strict=True)})

    return Field(write, read)


@attrs.frozen
class Extended(Generic[T]):
    """A kind with new fields: a value that does not use them is still written in the old format."""

    kind: int
    field: Field[T]
    says_all: Callable[[T], bool]
    """Whether the older kind expresses the value completely."""


def union(
    version: int,
    kinds: Mapping[int, tuple[type[Any], Field[Any]]],
    older: Mapping[type[Any], Extended[Any]] = MappingProxyType({}),
) -> Field[Any]:
    """A version byte, a kind byte, a record. Unknown versions and kinds are refused."""
    by_type = {cls: (kind, field) for kind, (cls, field) in kinds.items()}
    assert len(by_type) == len(kinds), "one kind per class"
    readers = {kind: field for kind, (_, field) in kinds.items()}
    readers |= {one.kind: one.field for one in older.values()}
    assert len(readers) == len(kinds) + len(older), "one class per kind"

    def kind_of(value: object) -> tuple[int, Field[Any]]:
        before = older.get(type(value))
        if before is not None and before.says_all(value):
            return before.kind, before.field
        return by_type[type(value)]

    def write(out: bytearray, value: object) -> None:
        kind, field = kind_of(value)
        out.append(version)
        out.append(kind)
        field.write(out, value)

    def read(reader: Reader) -> object:
        head = reader.take(2)
        if head[0] != version or head[1] not in readers:
            raise PackingError(f"version {head[0]} kind {head[1]} is not known")
        value = readers[head[1]].read(reader)
        if kind_of(value)[0] != head[1]:
            raise PackingError(f"kind {head[1]} where an older one says as much")
        return value

    return Field(write, read)
