"""From (message class, version) to one flat Python function that decodes it.

Nested structures and arrays are unrolled into a single function; adjacent fixed-size fields are
read by one `unpack_from`, together with the length, count or first varint byte that follows them.
Instances are made with `object.__new__` and filled by attribute, which for slotted classes costs
half a constructor call. No loop runs longer than the bytes of the message justify: each count is
checked against the bytes left, and the sum of all counts against ITEMS_MAX.
"""

from collections.abc import Callable
from struct import calcsize
from struct import unpack_from as struct_unpack_from
from typing import Any, Final

from wire.codec.generated_source import Source
from wire.codec.primitives import (
    FAILURES,
    ITEMS_MAX,
    TagReader,
    bad_count,
    bad_length,
    explain,
    more_uvarint,
    read_tags,
)
from wire.codec.schema import FIXED_KINDS, NEVER, Kind, Spec, fields_of

Decode = Callable[[memoryview, int], Any]

_LENGTH_FORMATS: Final = {Kind.STRING: "h", Kind.BYTES: "i", Kind.RECORDS: "i", Kind.ARRAY: "i"}
_READ_SLICE: Final = {
    Kind.STRING: "view[pos:stop].tobytes().decode()",
    Kind.BYTES: "view[pos:stop].tobytes()",
    Kind.RECORDS: "view[pos:stop]",
}


def make_decoder(cls: type[object], version: int, *, flexible: bool) -> Decode:
    """A function (view, pos) -> instance of `cls`; bytes after the message are ignored."""
    spec = Spec(kind=Kind.STRUCT, struct=cls)
    return _Decoder(version, flexible).function(spec, f"{cls.__name__} v{version}")


class _Decoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._source = Source()
        self._source.named(
            new=object.__new__,
            more_uvarint=more_uvarint,
            read_tags=read_tags,
            bad_length=bad_length,
            bad_count=bad_count,
            explain=explain,
            FAILURES=FAILURES,
        )
        self._pending: list[tuple[str, str, str]] = []
        """Fixed-size reads not yet emitted: (format, target, path)."""

    def function(self, spec: Spec, title: str) -> Decode:
        source = self._source
        with source.block("def decode(view, pos):"):
            source.line("end = len(view)")
            source.line(f"left = {getattr(spec.struct, 'ITEMS_MAX', ITEMS_MAX)}")
            with source.block("try:"):
                self._value(spec, "result", "")
                self._flush()
                source.line("return result")
            with source.block("except FAILURES as error:"):
                paths = source.constant("PATHS", source.paths)
                source.line(f"raise explain(error, pos, {title!r}, {paths}) from None")
        return source.compile("decode", title)

    def _value(self, spec: Spec, target: str, path: str) -> None:
        """Emit code that puts the value into `target`, perhaps only at the next flush."""
        if spec.kind in FIXED_KINDS:
            self._pending.append((spec.kind.value, target, path))
        elif spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            if spec.nullable != NEVER:
                self._optional_struct(spec.struct, target, path)
            else:
                self._struct(spec.struct, target, path)
        else:
            self._sized(spec, target, path)

    def _optional_struct(self, cls: type[object], target: str, path: str) -> None:
        """A marker byte, negative for none, and the structure (KIP-893)."""
        marker = self._source.fresh("marker")
        self._pending.append(("b", marker, path))
        self._flush()
        with self._source.block(f"if {marker} < 0:", path):
            self._source.line(f"{target} = None", path)
        with self._source.block("else:", path):
            self._struct(cls, target, path)
            self._flush()

    def _struct(self, cls: type[object], target: str, path: str) -> None:
        source = self._source
        source.line(f"{target} = new({source.constant(cls.__name__, cls)})", path)
        for field in fields_of(cls):
            name, spec = field.name, field.spec
            if spec.tag is not None or not spec.versions.has(self._version):
                default = "[]" if field.is_list else repr(field.default)
                source.line(f"{target}.{name} = {default}", path)
            else:
                self._value(spec, f"{target}.{name}", f"{path}.{name}" if path else name)
        if self._flexible:
            count = source.fresh("tags")
            self._pending.append(("B", count, path))
            self._flush()
            readers = source.constant("TAGS", self._tag_readers(cls))
            with source.block(f"if {count}:", path):
                source.line(f"pos = read_tags(view, pos, {count}, {target}, {readers})", path)

    def _tag_readers(self, cls: type[object]) -> dict[int, TagReader]:
        readers = {}
        for field in fields_of(cls):
            if field.spec.tag is not None and field.spec.versions.has(self._version):
                title = f"{cls.__name__} v{self._version}: {field.name}"
                decode = _Decoder(self._version, self._flexible).function(field.spec, title)
                readers[field.spec.tag] = TagReader(field.name, decode)
        return readers

    def _sized(self, spec: Spec, target: str, path: str) -> None:
        """A string, bytes, records or array: a length, which may mean null, and the contents."""
        source = self._source
        size = self._length(spec, path)
        if spec.nullable.has(self._version):
            with source.block(f"if {size} {'== 0' if self._flexible else '== -1'}:", path):
                source.line(f"{target} = None", path)
            with source.block("else:", path):
                self._contents(spec, target, size, path)
        else:
            self._contents(spec, target, size, path)

    def _length(self, spec: Spec, path: str) -> str:
        """Emit the read of a length or count; a compact one is still one too large (0 is null)."""
        size = self._source.fresh("size")
        if not self._flexible:
            self._pending.append((_LENGTH_FORMATS[spec.kind], size, path))
            self._flush()
            return size
        self._pending.append(("B", size, path))
        self._flush()
        with self._source.block(f"if {size} > 127:", path):
            self._source.line(f"{size}, pos = more_uvarint(view, pos, {size})", path)
        return size

    def _contents(self, spec: Spec, target: str, size: str, path: str) -> None:
        source = self._source
        if spec.kind is Kind.ARRAY:
            self._array(spec, target, size, path)
            return
        exact = f"{size} - 1" if self._flexible else size
        source.line(f"stop = pos + {exact}", path)
        with source.block("if not pos <= stop <= end:", path):
            source.line(f"raise bad_length({exact}, end - pos)", path)
        source.line(f"{target} = {_READ_SLICE[spec.kind]}", path)
        source.line("pos = stop", path)

    def _array(self, spec: Spec, target: str, size: str, path: str) -> None:
        source, element = self._source, spec.element
        assert element is not None
        path += "[]"
        if self._flexible:
            source.line(f"{size} -= 1", path)
        source.line(f"left -= {size}", path)
        least = least_size(element, self._version, flexible=self._flexible)
        with source.block(f"if {size} < 0 or left < 0 or {size} * {least} > end - pos:", path):
            source.line(f"raise bad_count({size}, end - pos)", path)
        if element.kind in FIXED_KINDS:
            unpack = source.constant("unpack_from", struct_unpack_from)
            form = element.kind.value
            source.line(f'{target} = list({unpack}(f">{{{size}}}{form}", view, pos))', path)
            source.line(f"pos += {least} * {size}", path)
            return
        items, item = source.fresh("items"), source.fresh("item")
        source.line(f"{items} = {target} = []", path)
        with source.block(f"for _ in range({size}):", path):
            self._value(element, item, path)
            self._flush()
            source.line(f"{items}.append({item})", path)

    def _flush(self) -> None:
        """Emit one read for all pending fixed-size fields."""
        if not self._pending:
            return
        formats, targets, paths = zip(*self._pending, strict=True)
        self._pending.clear()
        if formats == ("B",):
            self._source.line(f"{targets[0]} = view[pos]", paths[0])
            self._source.line("pos += 1", paths[0])
            return
        unpack, size = self._source.unpacker("".join(formats))
        comma = "," if len(targets) == 1 else ""
        self._source.line(f"{', '.join(targets)}{comma} = {unpack}(view, pos)", paths[0])
        self._source.line(f"pos += {size}", paths[0])


def least_size(spec: Spec, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value takes: bounds a count by the bytes left."""
    if spec.kind in FIXED_KINDS:
        return calcsize(">" + spec.kind.value)
    if spec.kind is not Kind.STRUCT:
        return 1 if flexible else calcsize(">" + _LENGTH_FORMATS[spec.kind])
    assert spec.struct is not None
    if spec.nullable != NEVER:
        return 1
    return int(flexible) + sum(
        least_size(field.spec, version, flexible=flexible)
        for field in fields_of(spec.struct)
        if field.spec.tag is None and field.spec.versions.has(version)
    )
