"""However a stream is split into reads, the same frames come out, and no length is trusted."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.errors import ProtocolError
from wire.framing import (
    BUFFER_BYTES_MAX,
    FRAME_BYTES_MAX,
    LARGE_STEP_BYTES,
    MIB,
    OVER_ROOM_BYTES,
    OWNED_OVER_BYTES,
    PREFIX_BYTES,
    Frame,
    FrameAssembler,
    FrameLimits,
)

ANY_SIZE = FrameLimits(default=8 * MIB)
PRODUCE_BYTES_MAX = 16 * MIB
CLIENT_LIMITS = FrameLimits(default=FRAME_BYTES_MAX, by_key={0: PRODUCE_BYTES_MAX})
NOISE = random.Random(7).randbytes(2 * MIB)

sizes = st.one_of(
    st.integers(0, 300),
    st.sampled_from([OWNED_OVER_BYTES - 1, OWNED_OVER_BYTES, OWNED_OVER_BYTES + 1]),
    st.integers(0, 70_000),
)


def frame_of(size: int, salt: int = 0) -> bytes:
    start = (salt * 7919) % (len(NOISE) - size)
    return NOISE[start : start + size]


def stream_of(payloads: list[bytes]) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def feed(assembler: FrameAssembler, data: bytes | memoryview) -> int:
    """One read: as much of `data` as there is room for."""
    view = assembler.buffer_to_fill()
    assert len(view) > 0
    count = min(len(view), len(data))
    view[:count] = data[:count]
    assembler.received(count)
    return count


def run(assembler: FrameAssembler, data: bytes, reads: list[int]) -> list[tuple[bytes, bool]]:
    """The frames of a stream that arrives in reads of these sizes, again and again."""
    view, at, taken = memoryview(data), 0, 0
    frames, kept = [], []
    while at < len(data):
        at += feed(assembler, view[at : at + reads[taken % len(reads)]])
        taken += 1
        while (frame := assembler.take()) is not None:
            frames.append((bytes(frame.data), frame.owned))
            if frame.owned:
                kept.append((frame.data, frames[-1][0]))
    assert all(view == copied for view, copied in kept), "an owned frame changed afterwards"
    return frames


@settings(max_examples=150, deadline=None, database=None)
@given(
    frame_sizes=st.lists(sizes, max_size=12),
    reads=st.lists(st.sampled_from([3, 4, 5, 7, 100, 4096, 40_000, 10**9]), min_size=1, max_size=5),
)
def test_any_chunking_gives_the_same_frames(frame_sizes: list[int], reads: list[int]) -> None:
    payloads = [frame_of(size, salt) for salt, size in enumerate(frame_sizes)]
    assembler = FrameAssembler(ANY_SIZE)
    frames = run(assembler, stream_of(payloads), reads)
    assert [data for data, _ in frames] == payloads
    assert [owned for _, owned in frames] == [size > OWNED_OVER_BYTES for size in frame_sizes]
    assert assembler.take() is None
    assert assembler.partial_bytes == 0


@pytest.mark.parametrize("read", [1, 2, 3])
def test_byte_by_byte(read: int) -> None:
    payloads = [frame_of(size, size) for size in (0, 1, 5, 300, OWNED_OVER_BYTES + 9, 2)]
    frames = run(FrameAssembler(ANY_SIZE), stream_of(payloads), [read])
    assert [data for data, _ in frames] == payloads


@pytest.mark.parametrize("size", [MIB, MIB + 1, 2 * MIB - 100, 4 * MIB + 1])
def test_large_frames_back_to_back(size: int) -> None:
    """Each gets memory of its own, with small frames in between."""
    payload = (NOISE * 3)[:size]
    payloads = [payload, b"small", payload[::-1], frame_of(OWNED_OVER_BYTES), payload]
    for reads in ([10**9], [200_000, 5], [65_536]):
        frames = run(FrameAssembler(ANY_SIZE), stream_of(payloads), reads)
        assert [data for data, _ in frames] == payloads


def test_thousands_of_small_frames_use_one_buffer() -> None:
    """The buffer grows to its maximum under load, and no further."""
    assembler = FrameAssembler(ANY_SIZE)
    payloads = [frame_of(1 + salt % 700, salt) for salt in range(5000)]
    frames = run(assembler, stream_of(payloads), [10**9])
    assert [data for data, _ in frames] == payloads
    assert len(assembler.buffer_to_fill()) == BUFFER_BYTES_MAX


def test_a_frame_taken_is_good_until_the_next_buffer() -> None:
    assembler = FrameAssembler(ANY_SIZE)
    feed(assembler, stream_of([b"first", b"second", b"third"])[:-2])
    first, second = assembler.take(), assembler.take()
    assert isinstance(first, Frame)
    assert isinstance(second, Frame)
    assert (bytes(first.data), bytes(second.data)) == (b"first", b"second")
    assert (first.owned, second.owned) == (False, False)
    assert assembler.take() is None
    assert assembler.partial_bytes == 4 + 3
    feed(assembler, b"rd")
    third = assembler.take()
    assert third is not None
    assert third.data == b"third"


@pytest.mark.parametrize(
    ("limits", "head", "cap"),
    [
        (CLIENT_LIMITS, "ffffffff", PRODUCE_BYTES_MAX),  # -1
        (CLIENT_LIMITS, "80000000", PRODUCE_BYTES_MAX),
        (CLIENT_LIMITS, f"{PRODUCE_BYTES_MAX + 1:08x}", PRODUCE_BYTES_MAX),
        (CLIENT_LIMITS, f"{FRAME_BYTES_MAX + 1:08x} 0003", FRAME_BYTES_MAX),
        (CLIENT_LIMITS, "47455420 2f20", PRODUCE_BYTES_MAX),  # "GET / ": a web browser
        (FrameLimits(default=65536), "00010001", 65536),
        (FrameLimits(default=100), "00000065", 100),
    ],
)
def test_a_frame_over_its_cap_is_refused_at_once(limits: FrameLimits, head: str, cap: int) -> None:
    """At its fourth byte, or the sixth where the API key decides; again if asked again."""
    assembler = FrameAssembler(limits)
    data = bytes.fromhex(head)
    for byte in data[:-1]:
        feed(assembler, bytes([byte]))
        if assembler.partial_bytes < 4 or len(data) > assembler.partial_bytes >= 6:
            assert assembler.take() is None
    feed(assembler, data[-1:])
    for _ in range(2):
        with pytest.raises(ProtocolError, match=f"at most {cap} allowed"):
            assembler.take()


def test_records_may_be_large() -> None:
    assembler = FrameAssembler(CLIENT_LIMITS)
    payload = b"\x00\x00" + NOISE[: FRAME_BYTES_MAX + 5]
    assert run(assembler, stream_of([payload]), [5, 1, 10**9]) == [(payload, True)]


def test_limits_may_be_raised_between_frames() -> None:
    assembler = FrameAssembler(FrameLimits(default=65536))
    payload = b"\x00\x03" + bytes(70_000)
    assert run(assembler, stream_of([b"hello"]), [100]) == [(b"hello", False)]
    assembler.limits = CLIENT_LIMITS
    assert run(assembler, stream_of([payload]), [10**9]) == [(payload, True)]


def test_good_frames_before_a_bad_one_are_not_lost() -> None:
    assembler = FrameAssembler(FrameLimits(default=10))
    feed(assembler, stream_of([b"one", b"two"]) + b"\xff\xff\xff\xff")
    taken = [assembler.take(), assembler.take()]
    assert [bytes(frame.data) for frame in taken if frame] == [b"one", b"two"]
    with pytest.raises(ProtocolError):
        assembler.take()


def test_a_length_alone_costs_one_step_of_memory() -> None:
    tracemalloc.start()
    try:
        assembler = FrameAssembler(CLIENT_LIMITS)
        feed(assembler, PRODUCE_BYTES_MAX.to_bytes(4, "big") + b"\x00\x00")
        assert assembler.take() is None
        assert tracemalloc.get_traced_memory()[1] < LARGE_STEP_BYTES + 100_000
        assert len(assembler.buffer_to_fill()) < LARGE_STEP_BYTES
    finally:
        tracemalloc.stop()


class NarrowRoom:
    """Memory for incoming data, of which there may be none."""

    def __init__(self) -> None:
        self.free = 0

    def begin(self, size: int) -> bool:
        if size > self.free:
            return False
        self.free -= size
        return True

    def end(self, size: int) -> None:
        self.free += size

    def open(self, _size: int) -> None:
        pass

    def grow(self, _size: int) -> bool:
        return True


@pytest.mark.parametrize("key", [0, 8])
def test_what_is_kept_of_a_frame_that_is_too_long_waits_for_room(key: int) -> None:
    """Its bytes take somebody's memory as well, whether or not it ever ends."""
    room = NarrowRoom()
    assembler = FrameAssembler(FrameLimits(default=1000, read_over_max=1 << 30), room)
    head = (4 * PREFIX_BYTES).to_bytes(4, "big") + key.to_bytes(2, "big") + bytes(100)
    feed(assembler, head)
    assert list(assembler.frames()) == []
    assert (assembler.missing_room, assembler.holds_bytes) == (OVER_ROOM_BYTES, 0)
    room.free = OVER_ROOM_BYTES
    assert list(assembler.frames()) == []
    assert (assembler.missing_room, assembler.holds_bytes) == (0, OVER_ROOM_BYTES)
    assert room.free == 0
    assembler.drop()
    assert room.free == OVER_ROOM_BYTES
    assert assembler.holds_bytes == 0
