"""Hypothesis strategies for Kafka messages, made from the same declarations as the codecs."""

import functools
import struct
from collections.abc import Iterable
from typing import Any, Final

import attrs
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from wire.apis import APIS, Api
from wire.codec.schema import FIXED_KINDS, Field, Kind, Spec, fields_of
from wire.messages.fetch import PRIVATE_TAG

INTEGER_BITS: Final = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
# The range of kio's datetime and timedelta that survives a round trip without rounding.
KIO_MS_MAX: Final = 4_000_000_000_000
KIO_DURATIONS: Final = (
    "retention_time_ms",
    "session_lifetime_ms",
    "max_lifetime_ms",
    "renew_period_ms",
    "expiry_time_period_ms",
)

texts = st.one_of(
    st.sampled_from(["", "t", "orders", "ü-日本-🙂"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text("ab", min_size=120, max_size=140),  # compact lengths need two bytes from 127 on
)
octets = st.binary(max_size=20)
records = st.one_of(st.binary(max_size=40), st.binary(min_size=1020, max_size=1030))


def directions(apis: Iterable[Api] = tuple(APIS.values())) -> list[tuple[Api, int, str]]:
    """Every (API, version, direction) there is a codec for."""
    return [
        (api, version, direction)
        for api in apis
        for version in range(api.accepted.first, api.accepted.last + 1)
        for direction in ("request", "response")
    ]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Api) else str(value)


@functools.cache
def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Instances of `cls` in which fields that `version` does not have keep their defaults.

    So do fields that only we know: no other implementation can check them.
    """
    return st.builds(
        cls,
        **{
            field.name: _field(field, version)
            for field in fields_of(cls)
            if field.spec.versions.has(version) and is_kafkas(field)
        },
    )


def is_kafkas(field: Field) -> bool:
    return field.spec.tag is None or field.spec.tag < PRIVATE_TAG


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    spec = field.spec
    values = _values(field.name, spec, version)
    if spec.nullable.has(version) or (spec.tag is not None and spec.kind is Kind.STRUCT):
        values = st.none() | values
    return values


def _values(name: str, spec: Spec, version: int) -> st.SearchStrategy[Any]:
    if name.endswith("error_code"):
        return st.sampled_from([int(code) for code in KioErrorCode])
    if name.endswith("_timestamp_ms") or name == "transaction_start_time_ms":
        return st.integers(0, KIO_MS_MAX)
    if name == "log_append_time_ms":
        return st.just(-1) | st.integers(0, KIO_MS_MAX)
    if name in KIO_DURATIONS:
        return st.integers(-1, KIO_MS_MAX)
    match spec.kind:
        case Kind.BOOL:
            return st.booleans()
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            half = 1 << (INTEGER_BITS[spec.kind] - 1)
            return st.integers(-half, half - 1)
        case Kind.UINT16:
            return st.integers(0, (1 << 16) - 1)
        case Kind.FLOAT64:
            return st.floats(allow_nan=False)
        case Kind.UUID:
            return st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
        case Kind.STRING:
            return texts
        case Kind.BYTES:
            return octets
        case Kind.RECORDS:
            return records.map(memoryview)
        case Kind.ARRAY:
            assert spec.element is not None
            return st.lists(_values(f"{name}[]", spec.element, version), max_size=3)
        case Kind.STRUCT:
            assert spec.struct is not None
            inner = messages(spec.struct, version)
            # Kafka omits a tagged structure that has its default value; we do the same with None.
            return inner if spec.tag is None else inner.filter(lambda one: one != type(one)())


def example(cls: type[Any], version: int) -> Any:
    """A fixed message with a value in every field: two elements per array, no nulls."""
    numbers = iter(range(1, 1000))
    return _filled(cls, version, numbers)


def _filled(cls: type[Any], version: int, numbers: Any) -> Any:
    values = {
        field.name: _some(field.spec, version, numbers)
        for field in fields_of(cls)
        if field.spec.versions.has(version)
    }
    return cls(**values)


def _some(spec: Spec, version: int, numbers: Any) -> Any:
    if spec.kind is Kind.ARRAY:
        assert spec.element is not None
        return [_some(spec.element, version, numbers) for _ in range(2)]
    if spec.kind is Kind.STRUCT:
        assert spec.struct is not None
        return _filled(spec.struct, version, numbers)
    number = next(numbers)
    if spec.kind is Kind.BOOL:
        return True
    if spec.kind is Kind.UUID:
        return number.to_bytes(16, "big")
    if spec.kind in FIXED_KINDS:
        return number % 100
    if spec.kind is Kind.STRING:
        return f"s{number}"
    return memoryview(b"r%d" % number) if spec.kind is Kind.RECORDS else b"b%d" % number


def body(chunks: list[Any]) -> bytes:
    """The frame without its length prefix, which must be right."""
    joined = b"".join(chunks)
    assert struct.unpack_from(">i", joined)[0] == len(joined) - 4
    return joined[4:]


def present(message: Any, version: int) -> list[Field]:
    assert attrs.has(type(message))
    return [
        field
        for field in fields_of(type(message))
        if field.spec.versions.has(version) and is_kafkas(field)
    ]
