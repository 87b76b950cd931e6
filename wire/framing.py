"""From a byte stream to frames, without I/O. A frame is a 4-byte length and that many bytes.

The reader of a connection runs

    view = assembler.buffer_to_fill()
    assembler.received(sock.recv_into(view))
    for frame in assembler.frames(): ...

Small frames are slices of one reusable buffer and valid only until the next `buffer_to_fill`: to
keep one, copy it. A frame larger than OWNED_OVER_BYTES gets memory of its own, into which the rest
of it is received directly, so its records can be kept for ever without a copy. After a very large
frame the next read is offered little room: another large frame is likely to follow, and what lands
in the shared buffer has to be copied out.

Memory is reserved before it is allocated: a large frame begins when there is room for all of it
(`Room`), so that a frame that has begun can always be finished. Until then no more frames are
taken, and `missing_room` says how much the next one needs.

Limits are checked before memory is allocated. A length over the limit is refused when its four
bytes have arrived (six if the limit depends on the API key). A large frame gets its memory in steps
as it fills, so that a length alone costs us at most LARGE_STEP_BYTES. The only bytes ever moved are
the head of one unfinished small frame, once per buffer.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import attrs

from wire.errors import ProtocolError
from wire.oversized_produce import OversizedProduce

KIB: Final = 1024
MIB: Final = 1024 * KIB

FRAME_BYTES_MAX: Final = 1 * MIB
"""The limit of every API except Produce, which has a setting."""

OWNED_OVER_BYTES: Final = 16 * KIB
"""Frames larger than this own their memory."""
BUFFER_BYTES_MIN: Final = 32 * KIB
"""What an idle connection costs; the buffer doubles whenever one read fills it ..."""
BUFFER_BYTES_MAX: Final = 256 * KIB
"""... up to this."""
LARGE_STEP_BYTES: Final = 1 * MIB
DIRECT_OVER_BYTES: Final = 64 * KIB
"""After a frame larger than this, one more system call is cheaper than copying what follows."""
AFTER_LARGE_BYTES: Final = 16 * KIB
"""Room offered to the read that follows such a frame."""

PREFIX_BYTES: Final = 128 * KIB
"""Bytes kept of an oversized frame, so that the items it names can be refused one by one."""
OVER_ROOM_BYTES: Final = 2 * PREFIX_BYTES
"""Room reserved while an oversized frame is discarded: for its prefix, and as much again while the
prefix grows."""
PRODUCE_KEY: Final = 0

_LENGTH: Final = struct.Struct(">I")
_LENGTH_AND_KEY: Final = struct.Struct(">Ih")


@attrs.frozen(kw_only=True)
class FrameLimits:
    """The largest frame accepted, and exceptions by API key (the first two bytes of a frame)."""

    default: int
    by_key: Mapping[int, int] = attrs.Factory(dict)
    read_over_max: int = 0
    """A frame over its limit and up to this size is read and discarded, so that its sender gets an
    error response (`FrameAssembler.over`); a longer one closes the connection."""
    buffer_min: int = BUFFER_BYTES_MIN
    """The first receive buffer: more than OWNED_OVER_BYTES and a length."""
    buffer_max: int = BUFFER_BYTES_MAX
    """The receive buffer grows up to this."""
    step: int = LARGE_STEP_BYTES
    """Memory allocated for a large frame before its bytes arrive. Trusted peers, such as our own
    nodes, may get it all at once: growing costs a copy of every frame a little over one step."""

    @property
    def largest(self) -> int:
        return max(self.default, *self.by_key.values()) if self.by_key else self.default


class Room(Protocol):
    """The memory budget that an assembler receives into."""

    def begin(self, size: int) -> bool:
        """Reserve room for a large frame of this size; False if there is not enough."""

    def end(self, size: int) -> None:
        """Return such room: the frame was handed on, or given up."""

    def open(self, size: int) -> None:
        """Count the first receive buffer, which every connection gets."""

    def grow(self, size: int) -> bool:
        """Reserve room for the receive buffer to grow by this much; False if there is not enough.
        A negative size returns room."""


class _Endless:
    """For clients: they only receive what they asked for."""

    def begin(self, _size: int) -> bool:
        return True

    def end(self, _size: int) -> None:
        pass

    def open(self, _size: int) -> None:
        pass

    def grow(self, _size: int) -> bool:
        return True


ENDLESS: Final = _Endless()


class Frame(NamedTuple):
    """`data` is without the length. Unless `owned`, it is invalid after the next
    `buffer_to_fill`."""

    data: memoryview
    owned: bool


class _Over:
    """An oversized frame: its prefix is kept, or everything but the records of a Produce."""

    def __init__(self, size: int, key: int) -> None:
        self.size = self.left = size
        self._produce = OversizedProduce() if key == PRODUCE_KEY else None
        self._prefix = bytearray()

    def feed(self, data: memoryview) -> None:
        self.left -= len(data)
        if self._produce is not None:
            self._produce.feed(data)
        elif len(self._prefix) < PREFIX_BYTES:
            self._prefix += data[: PREFIX_BYTES - len(self._prefix)]

    @property
    def kept(self) -> bytearray:
        return self._prefix if self._produce is None else self._produce.kept


class FrameAssembler:
    """The receiving half of one connection. `limits` may be replaced, e.g. on authentication."""

    def __init__(self, limits: FrameLimits, room: Room = ENDLESS) -> None:
        self.limits = limits
        self._room = room
        self.missing_room = 0
        """Room that the next frame needs and did not get: call `frames` again when there may be
        some. 0 if no frame waits for room."""
        assert limits.buffer_min > OWNED_OVER_BYTES + 4, "the rest of a small frame always fits"
        room.open(limits.buffer_min)
        self._buffer = memoryview(bytearray(limits.buffer_min))
        self._start = 0
        """Position of the first byte that was not taken yet."""
        self._stop = 0
        """Position after the last byte received."""
        self._grow = False
        self._after_large = False
        self._large: memoryview | None = None
        """Memory of the large frame being received; `_filled` bytes of it have arrived."""
        self._large_size = 0
        self._filled = 0
        self._over: _Over | None = None
        """The oversized frame being discarded."""
        self.over = 0
        """The length of the frame just handed on if it was oversized, and so only its kept part was
        handed on; else 0."""

    def buffer_to_fill(self) -> memoryview:
        """Where to receive into; never empty. Take all frames first: this invalidates unowned
        ones."""
        if self._large is not None:
            if self._filled == len(self._large):
                self._extend_large()
            return self._large[self._filled :]
        self._make_room()
        if self._after_large:
            return self._buffer[self._stop : self._stop + AFTER_LARGE_BYTES]
        return self._buffer[self._stop :]

    def received(self, count: int) -> None:
        """`count` bytes have been written to the start of what `buffer_to_fill` returned."""
        if self._large is not None:
            self._filled += count
            assert self._filled <= len(self._large), "more received than there was room for"
            return
        self._stop += count
        assert self._stop <= len(self._buffer), "more received than there was room for"
        self._grow = self._stop == len(self._buffer)

    def take(self) -> Frame | None:
        """The next complete frame, or None if more bytes (or more room) are needed.

        Raises:
            ProtocolError: a frame is longer than allowed; the stream is then useless.
        """
        return next(self.frames(), None)

    def frames(self) -> Iterator[Frame]:
        """The complete frames received so far, in order. A caller may stop halfway and get the rest
        later.

        Raises:
            ProtocolError: a frame is longer than allowed; the stream is then useless.
        """
        self.over = 0
        while True:
            if self._large is not None:
                if self._filled < self._large_size:
                    return
                yield self._take_large(self._large)
                continue
            start = self._start
            over = self._over
            if over is not None:
                if not self._pass_by(over):
                    return
                self.over, self._over = over.size, None
                self._room.end(OVER_ROOM_BYTES)
                yield Frame(memoryview(over.kept), True)
                self.over = 0
                continue
            there = self._stop - start - 4
            if there < 0:
                return
            size: int = _LENGTH.unpack_from(self._buffer, start)[0]
            if size > self.limits.default and not self._allowed(size, there):
                if self._over is None:
                    return
                continue
            if size > OWNED_OVER_BYTES:
                if not self._room.begin(size):
                    self.missing_room = size
                    return
                self.missing_room = 0
                self._begin_large(size, there)
            elif there < size:
                return
            else:
                self._after_large = False
                self._start = stop = start + 4 + size
                yield tuple.__new__(Frame, (self._buffer[start + 4 : stop], False))  # not Frame()

    @property
    def partial_bytes(self) -> int:
        """Bytes of an unfinished frame that have arrived: 0 between frames (for idle timeouts).

        The length prefix counts: a peer that has sent only that is in the middle of a frame, and
        may hold a step of memory for it.
        """
        if self._over is not None:
            return 4 + self._over.size - self._over.left
        return 4 + self._filled if self._large is not None else self._stop - self._start

    @property
    def holds_bytes(self) -> int:
        """Room reserved for the unfinished large or oversized frame."""
        if self._over is not None:
            return OVER_ROOM_BYTES
        return self._large_size if self._large is not None else 0

    def shrink(self) -> None:
        """Replace the buffer by a small one, if it has grown and is empty."""
        if self._start == self._stop and len(self._buffer) > BUFFER_BYTES_MIN:
            self._room.grow(BUFFER_BYTES_MIN - len(self._buffer))
            self._buffer = memoryview(bytearray(BUFFER_BYTES_MIN))
            self._start = self._stop = 0
            self._grow = False

    def drop(self) -> None:
        """Free all memory: nothing more will be received."""
        if self._large is not None:
            self._room.end(self._large_size)
            self._large = None
        if self._over is not None:
            self._room.end(OVER_ROOM_BYTES)
            self._over = None
        self._room.grow(-len(self._buffer))
        self._buffer = memoryview(b"")
        self._start = self._stop = self._filled = self.missing_room = 0

    def _allowed(self, size: int, there: int) -> bool:
        """False while the API key has not arrived, or if the frame is oversized and to be
        discarded; raises ProtocolError if it is longer than that."""
        cap = self.limits.largest
        if size <= cap:
            if there < 2:
                return False
            key = _LENGTH_AND_KEY.unpack_from(self._buffer, self._start)[1]
            cap = self.limits.by_key.get(key, self.limits.default)
        if cap < size <= self.limits.read_over_max:
            key = _LENGTH_AND_KEY.unpack_from(self._buffer, self._start)[1] if there >= 2 else None
            if key is not None:
                self._begin_over(size, key)
            return False
        if size > cap:
            signed = size - (1 << 32) if size >> 31 else size
            raise ProtocolError(f"a frame of {signed} bytes, at most {cap} allowed", "frame", 0)
        return True

    def _begin_over(self, size: int, key: int) -> None:
        """Begin to discard an oversized frame, if there is room for its kept part."""
        if self._room.begin(OVER_ROOM_BYTES):
            self.missing_room = 0
            self._over = _Over(size, key)
            self._start += 4
        else:
            self.missing_room = OVER_ROOM_BYTES

    def _pass_by(self, over: "_Over") -> bool:
        """Discard what has arrived of an oversized frame; True if that was all of it."""
        stop = min(self._stop, self._start + over.left)
        over.feed(self._buffer[self._start : stop])
        self._start = stop
        self._grow = False
        return not over.left

    def _begin_large(self, size: int, there: int) -> None:
        """Give a large frame its own memory, and copy the bytes that have arrived into it."""
        body = self._start + 4
        count = min(size, there)
        self._large = memoryview(bytearray(max(count, min(size, self.limits.step))))
        self._large[:count] = self._buffer[body : body + count]
        self._large_size = size
        self._filled = count
        self._start = body + count

    def _extend_large(self) -> None:
        """Make the memory four times as large: copying stays below a third of what is received."""
        assert self._large is not None
        larger = memoryview(bytearray(min(self._large_size, 4 * len(self._large))))
        larger[: self._filled] = self._large[: self._filled]
        self._large = larger

    def _take_large(self, large: memoryview) -> Frame:
        self._large = None
        self._filled = 0
        self._room.end(self._large_size)
        self._after_large = self._large_size > DIRECT_OVER_BYTES
        return Frame(large, True)

    def _make_room(self) -> None:
        """Move an unfinished small frame to the front, or into a larger buffer, if needed.

        The rest of a small frame always fits: the frame and its length take little more than half
        of the smallest buffer. A new buffer and not a resize, so that frames handed out stay
        readable.
        """
        start, stop, buffer = self._start, self._stop, self._buffer
        left = stop - start
        target = buffer
        wanted = self._grow and len(buffer) < self.limits.buffer_max
        larger = min(2 * len(buffer), self.limits.buffer_max)
        if wanted and self._room.grow(larger - len(buffer)):
            target = memoryview(bytearray(larger))
        elif left and len(buffer) - stop > OWNED_OVER_BYTES + 4:
            return
        self._grow = False
        assert left < len(target), "frames must be taken before more bytes are received"
        target[:left] = buffer[start:stop]
        self._buffer, self._start, self._stop = target, 0, left
