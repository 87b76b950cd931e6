"""How a Kafka message is declared: an attrs class whose fields have a wire type and versions.

    @attrs.define
    class ListOffsetsPartition:
        partition_index: int = int32()
        current_leader_epoch: int = int32("4+", default=-1)
        timestamp: int = int64()

A specifier such as `int32()` is an `attrs.field` typed as the value it will hold, so handlers and
mypy see plain typed classes while the compiler finds a `Spec` in the field's metadata. Version
ranges are written as in Kafka's own message definitions: "0+", "3-9", "4". A field that a version
does not have takes its default when decoded and is left out when encoded. Fields are declared in
wire order, except that tagged ones (KIP-482) may stand anywhere.

Differences from Kafka's definitions: a nullable field defaults to null, and None is written as
empty in a version that has no null; a tagged structure is None when it is not there; a UUID is its
16 bytes; an error code is an int (compare it with ErrorCode).
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast, overload

import attrs

from wire.codec.primitives import Buffer

T = TypeVar("T")

RecordsField: TypeAlias = Buffer | Sequence[Buffer] | None
"""The records of a fetch response: one buffer, or several that are sent in order."""

UUID_ZERO: Final = bytes(16)
UNBOUNDED: Final = 1 << 15


class Kind(Enum):
    """Wire types. The value of a fixed-size kind is its format for `struct`."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"
    ARRAY = "array"


FIXED_KINDS: Final = frozenset(
    {
        Kind.BOOL,
        Kind.INT8,
        Kind.INT16,
        Kind.UINT16,
        Kind.INT32,
        Kind.INT64,
        Kind.FLOAT64,
        Kind.UUID,
    }
)


class Versions(NamedTuple):
    """An inclusive range of versions."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text.endswith("+"):
            return cls(int(text[:-1]), UNBOUNDED)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER: Final = Versions(1, 0)
ALWAYS: Final = Versions(0, UNBOUNDED)


@attrs.frozen(kw_only=True)
class Spec:
    """The wire format of one field. `struct`: its class; `element`: the elements of an array."""

    kind: Kind
    versions: Versions = ALWAYS
    nullable: Versions = NEVER
    tag: int | None = None
    struct: type[object] | None = None
    element: "Spec | None" = None


class Field(NamedTuple):
    """One field of a message class, as the compiler sees it."""

    name: str
    spec: Spec
    default: object
    """None if `is_list`: every instance gets a list of its own."""

    @property
    def is_list(self) -> bool:
        return self.spec.kind is Kind.ARRAY and self.spec.nullable == NEVER


_METADATA_KEY: Final = "wire"


def fields_of(cls: type[object]) -> tuple[Field, ...]:
    """The declared fields of a message class, in wire order."""
    assert attrs.has(cls), f"{cls.__name__} is not a message class"
    fields = [
        Field(one.name, one.metadata[_METADATA_KEY], one.default) for one in attrs.fields(cls)
    ]
    return tuple(field._replace(default=None) if field.is_list else field for field in fields)


def _declare(
    kind: Kind,
    versions: str,
    default: object,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    struct: type[object] | None = None,
    element: Spec | None = None,
) -> Any:  # noqa: ANN401  attrs.field is typed as the value it stands for; so are our callers
    spec = Spec(
        kind=kind,
        versions=Versions.parse(versions),
        nullable=NEVER if nullable is None else Versions.parse(nullable),
        tag=tag,
        struct=struct,
        element=element,
    )
    return attrs.field(default=default, metadata={_METADATA_KEY: spec})


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    return cast(bool, _declare(Kind.BOOL, versions, default, tag=tag))


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, _declare(Kind.INT8, versions, default, tag=tag))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, _declare(Kind.INT16, versions, default, tag=tag))


def uint16(versions: str = "0+") -> int:
    return cast(int, _declare(Kind.UINT16, versions, 0))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, _declare(Kind.INT32, versions, default, tag=tag))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, _declare(Kind.INT64, versions, default, tag=tag))


def float64(versions: str = "0+") -> float:
    return cast(float, _declare(Kind.FLOAT64, versions, 0.0))


def uuid(versions: str = "0+", *, tag: int | None = None) -> bytes:
    return cast(bytes, _declare(Kind.UUID, versions, UUID_ZERO, tag=tag))


@overload
def string(versions: str = "0+", *, default: str = "", tag: int | None = None) -> str: ...
@overload
def string(versions: str = "0+", *, nullable: str, tag: int | None = None) -> str | None: ...
def string(
    versions: str = "0+", *, nullable: str | None = None, default: str = "", tag: int | None = None
) -> str | None:
    value = default if nullable is None else None
    return cast("str | None", _declare(Kind.STRING, versions, value, nullable=nullable, tag=tag))


@overload
def octets(versions: str = "0+") -> bytes: ...
@overload
def octets(versions: str = "0+", *, nullable: str) -> bytes | None: ...
def octets(versions: str = "0+", *, nullable: str | None = None) -> bytes | None:
    """Opaque bytes (group metadata, assignments); decoding copies them out of the frame."""
    value = b"" if nullable is None else None
    return cast("bytes | None", _declare(Kind.BYTES, versions, value, nullable=nullable))


def records(versions: str = "0+") -> memoryview | None:
    """Record batches: decoded as a view of the frame, encoded from any buffer without a copy."""
    return cast("memoryview | None", _declare(Kind.RECORDS, versions, None, nullable="0+"))


def record_chunks(versions: str = "0+") -> RecordsField:
    """Like `records`, but may be given as a sequence of buffers; decoded as one view."""
    return cast(RecordsField, _declare(Kind.RECORDS, versions, None, nullable="0+"))


def struct(of: type[T], versions: str, *, tag: int) -> T | None:
    """A tagged structure; None if it is absent."""
    return cast("T | None", _declare(Kind.STRUCT, versions, None, tag=tag, struct=of))


def inline_struct(of: type[T], versions: str = "0+") -> T:
    """An untagged structure; its default has every field at its default."""
    default: object = attrs.Factory(of)
    return cast(T, _declare(Kind.STRUCT, versions, default, struct=of))


def optional_struct(of: type[T], versions: str = "0+") -> T | None:
    """An untagged structure behind a marker byte that says whether there is one (KIP-893)."""
    return cast("T | None", _declare(Kind.STRUCT, versions, None, nullable=versions, struct=of))


@overload
def array(of: type[T], versions: str = "0+", *, tag: int | None = None) -> list[T]: ...
@overload
def array(of: type[T], versions: str = "0+", *, nullable: str) -> list[T] | None: ...
def array(
    of: type[T], versions: str = "0+", *, nullable: str | None = None, tag: int | None = None
) -> list[T] | None:
    element = Spec(kind=Kind.STRUCT, struct=of)
    return cast("list[T] | None", _array(element, versions, nullable, tag))


def int8_array(versions: str = "0+") -> list[int]:
    return cast("list[int]", _array(Spec(kind=Kind.INT8), versions, None, None))


def int64_array(versions: str = "0+") -> list[int]:
    return cast("list[int]", _array(Spec(kind=Kind.INT64), versions, None, None))


@overload
def int32_array(versions: str = "0+") -> list[int]: ...
@overload
def int32_array(versions: str = "0+", *, nullable: str) -> list[int] | None: ...
def int32_array(versions: str = "0+", *, nullable: str | None = None) -> list[int] | None:
    return cast("list[int] | None", _array(Spec(kind=Kind.INT32), versions, nullable, None))


@overload
def string_array(versions: str = "0+") -> list[str]: ...
@overload
def string_array(versions: str = "0+", *, nullable: str) -> list[str] | None: ...
def string_array(versions: str = "0+", *, nullable: str | None = None) -> list[str] | None:
    return cast("list[str] | None", _array(Spec(kind=Kind.STRING), versions, nullable, None))


def _array(element: Spec, versions: str, nullable: str | None, tag: int | None) -> object:
    default: object = attrs.Factory(list) if nullable is None else None
    return _declare(Kind.ARRAY, versions, default, nullable=nullable, tag=tag, element=element)
