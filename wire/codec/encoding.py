"""From (message class, version) to one flat Python function that encodes it.

The function takes the message and a bytearray that already holds the frame's head, and returns the
chunks of the frame. Adjacent fixed-size fields are packed by one `pack`, with the length, the count
or the empty tagged section (a pad byte) that follows. Records are not copied: the bytearray
collected so far becomes a chunk, then come the record buffers, then a new bytearray. Only buffers
smaller than JOIN_BYTES_MAX are copied, because one more iovec costs more than that.
"""

from collections.abc import Callable, Sequence
from struct import pack as struct_pack
from typing import Any, Final

from wire.codec.generated_source import Source
from wire.codec.primitives import Buffer, TagWriter, put_tags, put_uvarint
from wire.codec.schema import FIXED_KINDS, NEVER, Field, Kind, Spec, fields_of

Encode = Callable[[Any, bytearray], list[Buffer]]

JOIN_BYTES_MAX: Final = 1024

_LENGTH_FORMATS: Final = {Kind.STRING: "h", Kind.BYTES: "i", Kind.RECORDS: "i", Kind.ARRAY: "i"}


def make_encoder(cls: type[object], version: int, *, flexible: bool) -> Encode:
    """A function (message, out) -> chunks; the first chunk is `out`, extended."""
    spec = Spec(kind=Kind.STRUCT, struct=cls)
    return _Encoder(version, flexible).function(spec, f"{cls.__name__} v{version}")


def record_buffers(value: Buffer | Sequence[Buffer] | None) -> tuple[int, Sequence[Buffer]]:
    """The length (-1 for null) and the buffers of a records field."""
    if value is None:
        return -1, ()
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value), (value,)
    return sum(map(len, value)), value


class _Encoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._source = Source()
        self._source.named(
            put_uvarint=put_uvarint, put_tags=put_tags, record_buffers=record_buffers
        )
        self._pending: list[tuple[str, str]] = []
        """Fixed-size writes not yet emitted: (format, expression); "x" has no expression."""

    def function(self, spec: Spec, title: str) -> Encode:
        source = self._source
        with source.block("def encode(message, out):"):
            source.line("chunks = []")
            self._value(spec, "message")
            self._flush()
            with source.block("if out:"):
                source.line("chunks.append(out)")
            source.line("return chunks")
        return source.compile("encode", title)

    def _value(self, spec: Spec, value: str) -> None:
        if spec.kind in FIXED_KINDS:
            self._pending.append((spec.kind.value, value))
        elif spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            if spec.nullable != NEVER:
                self._optional_struct(spec.struct, value)
            else:
                self._struct(spec.struct, value)
        elif spec.kind is Kind.ARRAY:
            self._array(spec, value)
        elif spec.kind is Kind.RECORDS:
            self._records(value)
        else:
            self._bytes(spec, value)

    def _optional_struct(self, cls: type[object], value: str) -> None:
        """A marker byte, -1 for none or 1, and the structure (KIP-893)."""
        self._flush()
        with self._source.block(f"if {value} is None:"):
            self._source.line("out.append(255)")
        with self._source.block("else:"):
            self._source.line("out.append(1)")
            self._struct(cls, value)
            self._flush()

    def _struct(self, cls: type[object], value: str) -> None:
        for field in fields_of(cls):
            if field.spec.tag is None and field.spec.versions.has(self._version):
                self._value(field.spec, f"{value}.{field.name}")
        if self._flexible:
            self._tags(cls, value)

    def _tags(self, cls: type[object], value: str) -> None:
        tagged = [
            field
            for field in fields_of(cls)
            if field.spec.tag is not None and field.spec.versions.has(self._version)
        ]
        if not tagged:
            self._pending.append(("x", ""))
            return
        self._flush()
        writers = self._source.constant("TAGS", self._tag_writers(tagged))
        usual = " and ".join(_is_default(field, f"{value}.{field.name}") for field in tagged)
        with self._source.block(f"if {usual}:"):
            self._source.line("out.append(0)")
        with self._source.block("else:"):
            self._source.line(f"put_tags(out, {value}, {writers})")

    def _tag_writers(self, tagged: list[Field]) -> tuple[TagWriter, ...]:
        writers = []
        for field in tagged:
            assert field.spec.tag is not None
            encode = _Encoder(self._version, self._flexible).function(field.spec, field.name)
            writers.append(
                TagWriter(field.spec.tag, field.name, _default_test(field), _joined(encode))
            )
        return tuple(sorted(writers, key=lambda writer: writer.tag))

    def _bytes(self, spec: Spec, value: str) -> None:
        """A string or bytes."""
        source = self._source
        data, size = source.fresh("data"), source.fresh("size")
        encoded = f"{value}.encode()" if spec.kind is Kind.STRING else value
        if spec.nullable != NEVER:
            with source.block(f"if {value} is None:"):
                source.line(f"{data}, {size} = b'', {self._null_size(spec)}")
            with source.block("else:"):
                source.line(f"{data} = {encoded}")
                source.line(f"{size} = len({data})")
        else:
            source.line(f"{data} = {encoded}")
            source.line(f"{size} = len({data})")
        self._length(spec, size)
        source.line(f"out += {data}")

    def _array(self, spec: Spec, value: str) -> None:
        source, element = self._source, spec.element
        assert element is not None
        items, size = source.fresh("items"), source.fresh("size")
        source.line(f"{items} = {value}")
        if spec.nullable != NEVER:
            with source.block(f"if {items} is None:"):
                source.line(f"{items}, {size} = (), {self._null_size(spec)}")
            with source.block("else:"):
                source.line(f"{size} = len({items})")
        else:
            source.line(f"{size} = len({items})")
        self._length(spec, size)
        if element.kind in FIXED_KINDS:
            pack = source.constant("pack", struct_pack)
            form = f'f">{{len({items})}}{element.kind.value}"'
            source.line(f"out += {pack}({form}, *{items})")
            return
        item = source.fresh("item")
        with source.block(f"for {item} in {items}:"):
            self._value(element, item)
            self._flush()

    def _null_size(self, spec: Spec) -> int:
        """The length that stands for None: null, or empty in a version that has no null."""
        return -1 if spec.nullable.has(self._version) else 0

    def _records(self, value: str) -> None:
        source = self._source
        size, parts = source.fresh("size"), source.fresh("parts")
        source.line(f"{size}, {parts} = record_buffers({value})")
        self._length(Spec(kind=Kind.RECORDS), size)
        with source.block(f"for part in {parts}:"):
            with source.block(f"if len(part) < {JOIN_BYTES_MAX}:"):
                source.line("out += part")
            with source.block("else:"):
                with source.block("if out:"):
                    source.line("chunks.append(out)")
                source.line("chunks.append(part)")
                source.line("out = bytearray()")

    def _length(self, spec: Spec, size: str) -> None:
        """Write all pending fields, then a length or count: the local `size` (-1 for null)."""
        if not self._flexible:
            self._pending.append((_LENGTH_FORMATS[spec.kind], size))
            self._flush()
            return
        source, pending = self._source, tuple(self._pending)
        source.line(f"{size} += 1")
        with source.block(f"if {size} < 128:"):
            self._pending.append(("B", size))
            self._flush()
        with source.block("else:"):
            self._pending.extend(pending)
            self._flush()
            source.line(f"put_uvarint(out, {size})")

    def _flush(self) -> None:
        if not self._pending:
            return
        formats = "".join(form for form, _ in self._pending)
        values = ", ".join(value for form, value in self._pending if form != "x")
        self._pending.clear()
        if formats == "B":
            self._source.line(f"out.append({values})")
        elif formats == "x":
            self._source.line("out.append(0)")
        else:
            pack, _ = self._source.packer(formats)
            self._source.line(f"out += {pack}({values})")


def _is_default(field: Field, value: str) -> str:
    """An expression that is true if a tagged field has its default and is left out."""
    if field.is_list:
        return f"not {value}"
    if field.default is None:
        return f"{value} is None"
    return f"{value} == {field.default!r}"


def _default_test(field: Field) -> Callable[[object], bool]:
    if field.is_list:
        return lambda value: not value
    return lambda value: value == field.default


def _joined(encode: Encode) -> Callable[[Any], bytes]:
    return lambda value: b"".join(encode(value, bytearray()))
