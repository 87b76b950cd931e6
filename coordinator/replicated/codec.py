"""The bytes that commands and checkpoints are made of, with bounds on everything that is read.

Integers are big-endian; a string is an int16 length (-1: None) and UTF-8; a blob is a uint32 length
and bytes; a sequence is a uint32 count and its items. Reading raises CommandError and nothing else.
"""

import struct
from typing import Final, TypeAlias

from coordinator.limits import COMMAND_BYTES_MAX, TEXT_BYTES_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview

U8: Final = struct.Struct(">B")
I16: Final = struct.Struct(">h")
I32: Final = struct.Struct(">i")
U32: Final = struct.Struct(">I")
I64: Final = struct.Struct(">q")


class CommandError(ValueError):
    """The bytes are invalid: damage or a peer's lie, never our own bug."""


class Writer:
    """Collects the pieces of one message; exceeding a limit is our own bug."""

    def __init__(self, *, bytes_max: int = COMMAND_BYTES_MAX) -> None:
        self._pieces: list[bytes] = []
        self._bytes_max = bytes_max

    def pack(self, layout: struct.Struct, *values: int) -> None:
        self._pieces.append(layout.pack(*values))

    def text(self, value: str | None) -> None:
        if value is None:
            self._pieces.append(I16.pack(-1))
            return
        data = value.encode()
        assert len(data) <= TEXT_BYTES_MAX, f"a string of {len(data)} bytes was let in"
        self._pieces.append(I16.pack(len(data)))
        self._pieces.append(data)

    def raw(self, data: bytes) -> None:
        """Append what the caller has packed; its strings were checked against the same limits."""
        self._pieces.append(data)

    def blob(self, data: bytes) -> None:
        self._pieces.append(U32.pack(len(data)))
        self._pieces.append(data)

    def finish(self) -> bytes:
        data = b"".join(self._pieces)
        assert len(data) <= self._bytes_max, f"{len(data)} bytes were let in"
        return data


class Reader:
    """Reads what Writer wrote, from any buffer, copying only strings and blobs."""

    def __init__(self, data: Buffer, *, bytes_max: int = COMMAND_BYTES_MAX) -> None:
        if len(data) > bytes_max:
            raise CommandError(f"{len(data)} bytes, at most {bytes_max} can be")
        self._view = memoryview(data)
        self._at = 0

    def number(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._view, self._at)
        except struct.error as error:
            raise CommandError(f"cut short at byte {self._at}") from error
        self._at += layout.size
        assert isinstance(value, int)
        return value

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read all numbers of a layout at once."""
        try:
            values = layout.unpack_from(self._view, self._at)
        except struct.error as error:
            raise CommandError(f"cut short at byte {self._at}") from error
        self._at += layout.size
        return values

    def text(self) -> str:
        value = self.optional_text()
        if value is None:
            raise CommandError(f"no string before byte {self._at}")
        return value

    def optional_text(self) -> str | None:
        length = self.number(I16)
        if length == -1:
            return None
        if length < 0:
            raise CommandError(f"a string of length {length}")
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise CommandError(f"a string that is not UTF-8 before byte {self._at}") from error

    def blob(self) -> bytes:
        return bytes(self._take(self.number(U32)))

    def count(self, count_max: int, item_bytes_min: int) -> int:
        """Read a count of items, checked against the bytes left before any memory is allocated."""
        count = self.number(U32)
        if count > count_max or count * item_bytes_min > len(self._view) - self._at:
            raise CommandError(f"{count} items announced before byte {self._at}")
        return count

    def finish(self) -> None:
        if self._at != len(self._view):
            raise CommandError(f"{len(self._view) - self._at} bytes too many")

    def _take(self, length: int) -> memoryview:
        end = self._at + length
        if end > len(self._view):
            raise CommandError(f"cut short: {length} bytes wanted at byte {self._at}")
        piece = self._view[self._at : end]
        self._at = end
        return piece
