"""Random Kafka messages, and a second encoder that knows where everything is.

`lay_out` is written from the protocol's description and shares nothing with wire/codec/encoding.py
but the declarations. It is the oracle of a differential test. It also knows the position of every
length, count, tagged section and text, which mutation aims at.
"""

import struct
from random import Random
from typing import Any, Final

from tests.broker.batches import batch
from tests.fuzz.mutate import Mark, Sample, uvarint
from wire.apis import APIS, Api, ApiKey, Request, Response
from wire.codec.schema import FIXED_KINDS, Field, Kind, Spec, fields_of
from wire.records.batch import Compression

CLIENT: Final = "fuzz"
CORRELATION_ID: Final = 7
NAMES: Final = ("t", "u", "g", "m", "fuzz-1", "", "t" * 130, "ü-日本", "range", "consumer")
SUBSCRIPTION: Final = bytes.fromhex("0000 00000001 000174 ffffffff")
BATCHES: Final = (
    batch("x"),
    batch("a", "b", pid=1000, seq=0),
    batch("z" * 40, "y", compression=Compression.GZIP),
)
_SIZES: Final = {Kind.BOOL: 1, Kind.INT8: 1, Kind.INT16: 2, Kind.INT32: 4, Kind.INT64: 8}
_SIZES[Kind.UINT16] = 2
_UNSIGNED: Final = (Kind.BOOL, Kind.UINT16)
_SMALL: Final = (0, 0, 1, 1, 2, 3, -1, -2, 5, 100, 500, 6_000)


# -- random messages ------------------------------------------------------------------------------


def versions_of(api: Api) -> range:
    return range(api.accepted.first, api.accepted.last + 1)


def random_message(cls: type[Any], version: int, dice: Random) -> Any:
    """An instance of `cls` with values that a server may know, or extreme values of their types."""
    values = {
        field.name: _random_field(field, version, dice)
        for field in fields_of(cls)
        if field.spec.versions.has(version)
    }
    return cls(**values)


def _random_field(field: Field, version: int, dice: Random) -> Any:
    spec = field.spec
    if spec.tag is not None and dice.random() < 0.7:
        return [] if field.is_list else field.default
    if spec.nullable.has(version) and dice.random() < 0.2:
        return None
    return _random_value(spec, version, dice)


def _random_value(spec: Spec, version: int, dice: Random) -> Any:
    match spec.kind:
        case Kind.BOOL:
            return dice.random() < 0.5
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            bits = 8 * _SIZES[spec.kind]
            if dice.random() < 0.8:
                small = dice.choice(_SMALL)
                return small if bits > 8 or abs(small) < 100 else 1
            return dice.choice((-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 1 << (bits - 2)))
        case Kind.UINT16:
            return dice.choice((0, 1, 9092, (1 << 16) - 1))
        case Kind.FLOAT64:
            return dice.choice((0.0, 1.5, -1.0, 1e308, float("inf")))
        case Kind.UUID:
            return dice.choice((bytes(16), bytes(15) + b"\1", bytes(15) + b"\1", b"\xff" * 16))
        case Kind.STRING:
            return dice.choice(NAMES)
        case Kind.BYTES:
            return dice.choice(
                (b"", b"x", bytes.fromhex("0000 00000001 000174 ffffffff"), b"\0" * 9)
            )
        case Kind.RECORDS:
            return memoryview(dice.choice((*BATCHES, *BATCHES, b"", bytes(70))))
        case Kind.ARRAY:
            assert spec.element is not None
            count = dice.choice((0, 1, 1, 1, 2, 3))
            return [_random_value(spec.element, version, dice) for _ in range(count)]
        case Kind.STRUCT:
            assert spec.struct is not None
            return random_message(spec.struct, version, dice)


# -- the second encoder ---------------------------------------------------------------------------


class _Layout:
    def __init__(self, version: int, *, flexible: bool) -> None:
        self.out = bytearray()
        self.marks: list[Mark] = []
        self._version = version
        self._flexible = flexible

    def put(self, data: bytes, kind: str) -> None:
        self.marks.append(Mark(len(self.out), len(data), kind))
        self.out += data

    def message(self, value: Any) -> None:
        """The fields of a structure in order, then its tagged section."""
        tagged: list[tuple[int, bytes]] = []
        for field in fields_of(type(value)):
            spec, content = field.spec, getattr(value, field.name)
            if not spec.versions.has(self._version):
                continue
            if spec.tag is None:
                self._value(spec, content)
            elif content != (default := [] if field.is_list else field.default):
                assert content is not None, f"{field.name}: only {default} is left out"
                inner = _Layout(self._version, flexible=self._flexible)
                inner._value(spec, content)
                tagged.append((spec.tag, bytes(inner.out)))
        if self._flexible:
            section = bytearray(uvarint(len(tagged)))
            for tag, encoded in sorted(tagged):
                section += uvarint(tag) + uvarint(len(encoded)) + encoded
            self.put(bytes(section), "tags")

    def _value(self, spec: Spec, value: Any) -> None:
        kind = spec.kind
        if kind is Kind.STRUCT:
            if spec.nullable.has(self._version):
                self.put(b"\xff" if value is None else b"\x01", "i1")
            if value is not None:
                self.message(value)
        elif kind is Kind.UUID:
            self.out += value
        elif kind is Kind.FLOAT64:
            self.put(struct.pack(">d", value), "f8")
        elif kind in FIXED_KINDS:
            size = _SIZES[kind]
            self.put(int(value).to_bytes(size, "big", signed=kind not in _UNSIGNED), f"i{size}")
        elif value is None:
            self._length(spec, -1 if spec.nullable.has(self._version) else 0)
        elif kind is Kind.ARRAY:
            assert spec.element is not None
            self._length(spec, len(value))
            for item in value:
                self._value(spec.element, item)
        else:
            data = value.encode() if kind is Kind.STRING else bytes(value)
            self._length(spec, len(data))
            self.put(data, "text" if kind is Kind.STRING else "bytes")

    def _length(self, spec: Spec, length: int) -> None:
        if self._flexible:
            self.put(uvarint(length + 1), "varint")
        elif spec.kind is Kind.STRING:
            self.put(struct.pack(">h", length), "len2")
        else:
            self.put(struct.pack(">i", length), "count4" if spec.kind is Kind.ARRAY else "len4")


def _sample(layout: _Layout) -> Sample:
    marks = tuple(mark for mark in layout.marks if mark.kind != "bytes")
    return Sample(bytes(layout.out), marks)


def lay_out_request(api: Api, version: int, message: Request, client: str | None) -> Sample:
    """A request without its length prefix."""
    flexible = api.flexible(version)
    layout = _Layout(version, flexible=flexible)
    layout.put(struct.pack(">h", api.key), "i2")
    layout.put(struct.pack(">h", version), "i2")
    layout.put(struct.pack(">i", CORRELATION_ID), "i4")
    layout.put(struct.pack(">h", -1 if client is None else len(client.encode())), "len2")
    layout.put(b"" if client is None else client.encode(), "text")
    if flexible:
        layout.put(b"\0", "tags")
    layout.message(message)
    return _sample(layout)


def lay_out_response(api: Api, version: int, message: Response) -> Sample:
    """A response without its length prefix."""
    layout = _Layout(version, flexible=api.flexible(version))
    layout.put(struct.pack(">i", CORRELATION_ID), "i4")
    if api.response_header_version(version) == 1:
        layout.put(b"\0", "tags")
    layout.message(message)
    return _sample(layout)


def random_request(api: Api, version: int, dice: Random) -> Sample:
    message = random_message(api.request, version, dice)
    return lay_out_request(api, version, message, dice.choice((CLIENT, CLIENT, None, "")))


def api_named(name: str) -> Api:
    return APIS[ApiKey[name]]
