"""Mutation of inputs: blind havoc for any bytes, aimed changes where the structure is known.

A `Sample` is an input with the places in it that have a meaning (`Mark`): lengths, counts, tagged
sections, text. Changes at marks are the most valuable: a random byte seldom hits the one length
that matters, and nearly every published hole of this kind is a length or a count that was trusted.
All random choices come from the dice passed in, so a seed replays bit for bit.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

INPUT_BYTES_MAX: Final = 64 * 1024
"""Larger inputs have their own hand-written cases (shapes.py)."""

_EDGES: Final = (0, 1, 2, 3, 7, 61, 127, 128, 255, 256, 1000, 1001, 4096, 32767, 32768, 65535)
_WIDE: Final = (1 << 18, (1 << 18) + 1, 20_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_HUGE: Final = ((1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
BAD_TEXT: Final = (
    b"\xff",
    b"\xc0\x80",  # an overlong NUL
    b"\xed\xa0\x80",  # a surrogate
    b"\xf4\x90\x80\x80",  # beyond Unicode
    b"\xe2\x82",  # cut short
    b"\x00",
    b"a\nb",
    "\u202e\U0001f642\u0301".encode(),
)


class Mark(NamedTuple):
    """`kind`: i1, i2, i4, i8 (numbers), len2, len4, count4 (signed), varint, tags, text."""

    at: int
    size: int
    kind: str


class Sample(NamedTuple):
    data: bytes
    marks: tuple[Mark, ...] = ()


def uvarint(value: int, *, padded: int = 0) -> bytes:
    """An unsigned varint; `padded` to that many bytes, which makes it overlong."""
    out = bytearray()
    while value > 0x7F or len(out) + 1 < padded:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(dice: Random, size: int, near: int | None = None) -> bytes:
    """An interesting big-endian integer of `size` bytes; sometimes one next to the old value."""
    if near is not None and dice.random() < 0.3:
        value = near + dice.choice((-2, -1, 1, 2))
    else:
        choice = _EDGES if size < 3 else _EDGES + _WIDE if size < 5 else _EDGES + _WIDE + _HUGE
        value = dice.choice(choice)
        if dice.random() < 0.25:
            value = -value
    return (value % (1 << (8 * size))).to_bytes(size, "big")


# -- havoc --------------------------------------------------------------------------------------


def _flip(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    data[dice.randrange(len(data))] = dice.randrange(256)


def _number(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    size = dice.choice((1, 2, 2, 4, 4, 4, 8))
    at = dice.randrange(len(data))
    data[at : at + size] = number(dice, size, int.from_bytes(data[at : at + size], "big"))


def _delete(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    at = dice.randrange(len(data))
    del data[at : at + dice.choice((1, 1, 2, 4, 8, 40))]


def _cut(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    del data[dice.randrange(len(data)) :]


def _insert(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.randbytes(dice.choice((1, 1, 2, 4, 9)))


def _insert_token(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    at = dice.randrange(len(data) + 1)
    tokens = (b"\x80" * 4 + b"\x00", b"\xff" * 5, uvarint(1 << 31), b"\x00" * 8, *BAD_TEXT)
    data[at:at] = dice.choice(tokens)


def _repeat(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    """The same piece again and again: this finds work that grows with the square."""
    at = dice.randrange(len(data))
    piece = bytes(data[at : at + dice.choice((1, 3, 4, 16, 64))])
    most = max(1, (INPUT_BYTES_MAX - len(data)) // max(1, len(piece)))
    data[at:at] = piece * min(most, dice.choice((2, 3, 10, 10, 100, 100, 1000, 1 << 16)))


def _splice(data: bytearray, dice: Random, pool: Sequence[Sample]) -> None:
    other = dice.choice(pool).data if pool else b""
    if other:
        start, at = dice.randrange(len(other)), dice.randrange(len(data))
        size = dice.choice((4, 16, 64, 1 << 16))
        data[at : at + size] = other[start : start + size]


def _move(data: bytearray, dice: Random, _pool: Sequence[Sample]) -> None:
    source, target = dice.randrange(len(data)), dice.randrange(len(data))
    piece = data[source : source + dice.choice((1, 4, 16, 64))]
    data[target : target + len(piece)] = piece


Blow = Callable[[bytearray, Random, Sequence[Sample]], None]
_BLOWS: Final[tuple[Blow, ...]] = (
    _flip, _flip, _set, _set, _set, _number, _number, _number, _number, _delete, _cut, _insert,
    _insert_token, _splice, _splice, _move,
)  # fmt: skip


def havoc(data: bytes, dice: Random, pool: Sequence[Sample]) -> bytes:
    """One to four blind changes."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 4))):
        if not out:
            out += dice.randbytes(dice.randint(0, 8))
            continue
        blow = _repeat if dice.random() < 0.01 else dice.choice(_BLOWS)
        blow(out, dice, pool)
    return bytes(out[:INPUT_BYTES_MAX])


# -- aimed changes ------------------------------------------------------------------------------


def _tagged(dice: Random) -> bytes:
    """A tagged section: unknown tags, known ones with nonsense, one tag twice, false counts."""
    count = dice.choice((1, 1, 2, 3, 20))
    claimed = dice.choice((count, count, count, count + 1, 1000, 1001, 20_000_000, (1 << 32) - 1))
    out = bytearray(uvarint(claimed, padded=dice.choice((0, 0, 0, 5))))
    tag = dice.choice((0, 1, 2, 5000, (1 << 32) - 1))
    for _ in range(count):
        content = dice.randbytes(dice.choice((0, 1, 2, 4, 12, 17)))
        size = dice.choice((len(content), len(content), len(content), 0, 1 << 31, len(content) + 1))
        out += uvarint(tag) + uvarint(size) + content
        tag = min(tag + dice.choice((0, 1)), (1 << 32) - 1)
    return bytes(out)


def _varint(dice: Random, old: bytes) -> bytes:
    before = sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(old))
    value = dice.choice((0, 0, 1, before + 1, max(0, before - 1), before, *_EDGES, *_WIDE))
    kind = dice.random()
    if kind < 0.1:
        return b"\xff" * dice.choice((4, 5, 6, 10)) + b"\x7f"  # more than 32 bits, or no end
    return uvarint(value, padded=5 if kind < 0.3 else 0)


def _aimed(dice: Random, old: bytes, mark: Mark) -> bytes:
    kind = mark.kind
    if kind == "tags":
        return _tagged(dice)
    if kind == "varint":
        return _varint(dice, old)
    if kind == "text":
        at = dice.randrange(len(old) + 1)
        return old[:at] + dice.choice(BAD_TEXT) + old[at + dice.choice((0, 1)) :]
    return number(dice, mark.size, int.from_bytes(old, "big", signed=True))


def mutated(sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
    """The sample after one to three changes, aimed ones if it has marks, and then perhaps havoc."""
    data, marks = sample
    if not marks or dice.random() < 0.4:
        return havoc(data, dice, pool)
    wanted = {dice.choice(marks) for _ in range(dice.choice((1, 1, 1, 2, 3)))}
    for mark in sorted(wanted, reverse=True):  # from the end, so that earlier marks stay valid
        at, end = mark.at, mark.at + mark.size
        data = data[:at] + _aimed(dice, data[at:end], mark) + data[end:]
    return havoc(data, dice, pool) if dice.random() < 0.15 else data[:INPUT_BYTES_MAX]
