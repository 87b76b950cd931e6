"""A Produce request that is too large to keep, reduced to what its error response needs.

The frame is read in pieces and discarded. What remains is a smaller frame of the same request
without any records, which still names its partitions. It is cut off if that takes more than
KEPT_BYTES_MAX (wire.codec.prefix reads it).
"""

import struct
from collections.abc import Generator
from typing import Final

from wire.codec.primitives import Malformed, read_uvarint
from wire.errors import ProtocolError

KEPT_BYTES_MAX: Final = 128 * 1024
FLEXIBLE_FROM: Final = 9
_HEAD: Final = struct.Struct(">hhih")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
NO_RECORDS: Final = b"\x00\x00\x00\x00"
NO_RECORDS_FLEXIBLE: Final = b"\x01"


class _Full(Exception):
    """The names take more than KEPT_BYTES_MAX."""


Parser = Generator[int, bytes, None]
"""Yields how many bytes it wants next; a negative number of bytes is skipped."""


class OversizedProduce:
    """Feed it a whole frame without its length; then `kept` is the reduced frame."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self._piece = bytearray()
        self._parser: Parser | None = self._parse()
        self._wants = next(self._parser)

    def feed(self, data: memoryview) -> None:
        """Take the next bytes of the frame.

        Raises:
            ProtocolError: it is not a Produce request.
        """
        at = 0
        while at < len(data) and self._parser is not None:
            if self._wants < 0:
                step = min(-self._wants, len(data) - at)
                self._wants += step
                at += step
                if self._wants == 0:
                    self._go_on(b"")
                continue
            step = min(self._wants - len(self._piece), len(data) - at)
            self._piece += data[at : at + step]
            at += step
            if len(self._piece) == self._wants:
                piece, self._piece = bytes(self._piece), bytearray()
                self._go_on(piece)

    def _go_on(self, piece: bytes) -> None:
        assert self._parser is not None
        try:
            self._wants = self._parser.send(piece)
            while self._wants == 0:
                self._wants = self._parser.send(b"")
        except (StopIteration, _Full):
            self._parser = None
        except Malformed as error:
            raise ProtocolError(str(error), "ProduceRequest", len(self.kept)) from None

    # -- the layout -----------------------------------------------------------------------------

    def _parse(self) -> Parser:
        head = yield from self._keep(_HEAD.size)
        _key, version, _correlation, client = _HEAD.unpack(head)
        yield from self._keep(max(0, client))
        flexible = version >= FLEXIBLE_FROM
        if flexible:
            yield from self._tags()
        yield from self._text(flexible)  # a transactional id
        yield from self._keep(6)  # acks and the timeout
        for _ in range((yield from self._count(flexible))):
            yield from self._text(flexible)
            for _ in range((yield from self._count(flexible))):
                yield from self._keep(4)  # the partition
                yield from self._drop_records(flexible)
                if flexible:
                    yield from self._tags()
            if flexible:
                yield from self._tags()
        if flexible:
            yield from self._tags()

    def _keep(self, size: int) -> Generator[int, bytes, bytes]:
        if len(self.kept) + size > KEPT_BYTES_MAX:
            raise _Full
        piece = (yield size) if size else b""
        self.kept += piece
        return piece

    def _varint(self) -> Generator[int, bytes, bytes]:
        """Read the bytes of one varint; they are not kept yet."""
        data = b""
        while True:
            data += yield 1
            if data[-1] < 0x80:
                return data
            if len(data) == 5:
                raise ProtocolError("a varint of more than five bytes", "frame", 0)

    def _count(self, flexible: bool) -> Generator[int, bytes, int]:
        if not flexible:
            return max(0, int(_INT.unpack((yield from self._keep(4)))[0]))
        data = yield from self._varint()
        self.kept += data
        return max(0, read_uvarint(memoryview(data), 0)[0] - 1)

    def _text(self, flexible: bool) -> Generator[int, bytes, None]:
        if flexible:
            size = yield from self._count(flexible)
        else:
            size = max(0, int(_SHORT.unpack((yield from self._keep(2)))[0]))
        yield from self._keep(size)

    def _drop_records(self, flexible: bool) -> Generator[int, bytes, None]:
        if flexible:
            data = yield from self._varint()
            size = read_uvarint(memoryview(data), 0)[0] - 1
        else:
            size = int(_INT.unpack((yield 4))[0])
        if size > 0:
            yield -size
        self.kept += NO_RECORDS_FLEXIBLE if flexible else NO_RECORDS

    def _tags(self) -> Generator[int, bytes, None]:
        data = yield from self._varint()
        self.kept += data
        for _ in range(read_uvarint(memoryview(data), 0)[0]):
            self.kept += yield from self._varint()
            data = yield from self._varint()
            self.kept += data
            yield from self._keep(read_uvarint(memoryview(data), 0)[0])
