"""Decoding the beginning of a message that was too long to keep.

A request that is refused for its length still has to be answered item by item if its API has no
error for the whole request. This decoder follows the same schema as the generated ones, field by
field. It is slow, but only reads a short prefix. An item counts as soon as its first field is
there, because the fields that identify an item come first. Missing fields have their defaults.
"""

import struct
from typing import Any, Final

from wire.codec.primitives import FAILURES, Malformed, read_uvarint, what_failed
from wire.codec.schema import FIXED_KINDS, NEVER, Kind, Spec, fields_of
from wire.errors import ProtocolError

_LENGTHS: Final = {Kind.STRING: ">h", Kind.BYTES: ">i", Kind.RECORDS: ">i", Kind.ARRAY: ">i"}
_VARINT_BYTES_MAX: Final = 5


class _Ended(Exception):
    """The bytes end before this value does."""


def decode_prefix(
    cls: type[object], version: int, *, flexible: bool, view: memoryview, pos: int
) -> Any:  # noqa: ANN401  an instance of `cls`
    """An instance of `cls` with the fields that `view` contains from `pos` on. Tagged fields are
    left out.

    Raises:
        ProtocolError: the bytes that are there are malformed.
    """
    reader = _PrefixReader(version, flexible, view, pos)
    try:
        return reader.struct(cls)
    except _Ended:
        return cls()
    except FAILURES as error:
        raise ProtocolError(what_failed(error), f"{cls.__name__} v{version}", reader.pos) from None


class _PrefixReader:
    def __init__(self, version: int, flexible: bool, view: memoryview, pos: int) -> None:
        self._version = version
        self._flexible = flexible
        self._view = view
        self.pos = pos
        self._ended = False

    def struct(self, cls: type[object]) -> object:
        """Read a structure, or its beginning.

        Raises:
            _Ended: not even its first field is there.
        """
        made: Any = cls()
        first = True
        for field in fields_of(cls):
            if field.spec.tag is not None or not field.spec.versions.has(self._version):
                continue
            try:
                setattr(made, field.name, self._value(field.spec))
            except _Ended:
                if first:
                    raise
                self._ended = True
            if self._ended:
                return made
            first = False
        if self._flexible:
            self._skip_tags()
        return made

    def _value(self, spec: Spec) -> object:
        if spec.kind in FIXED_KINDS:
            form = ">" + spec.kind.value
            (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
            return value
        if spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            if spec.nullable != NEVER and self._take(1)[0] > 0x7F:
                return None
            return self.struct(spec.struct)
        size = self._size(spec.kind)
        if size < 0:
            if not spec.nullable.has(self._version) or size < -1:
                raise Malformed(f"a length of {size}")
            return None
        if spec.kind is Kind.ARRAY:
            assert spec.element is not None
            return self._items(spec.element, size)
        data = self._take(size)
        return data.tobytes().decode() if spec.kind is Kind.STRING else data.tobytes()

    def _items(self, element: Spec, count: int) -> list[object]:
        items: list[object] = []
        while len(items) < count and not self._ended:
            before = self.pos
            try:
                items.append(self._value(element))
            except _Ended:
                self._ended = True
            else:
                if self.pos == before:
                    raise Malformed("an array of empty elements")
        return items

    def _size(self, kind: Kind) -> int:
        if self._flexible:
            return self._uvarint() - 1
        form = _LENGTHS[kind]
        (size,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(size)

    def _uvarint(self) -> int:
        """Read a varint.

        Raises:
            _Ended: its last byte is not there.
        """
        head = self._view[self.pos : self.pos + _VARINT_BYTES_MAX]
        if len(head) < _VARINT_BYTES_MAX and all(byte > 0x7F for byte in head):
            raise _Ended
        value, self.pos = read_uvarint(self._view, self.pos)
        return value

    def _take(self, size: int) -> memoryview:
        stop = self.pos + size
        if stop > len(self._view):
            raise _Ended
        data = self._view[self.pos : stop]
        self.pos = stop
        return data

    def _skip_tags(self) -> None:
        try:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())
        except _Ended:
            self._ended = True
