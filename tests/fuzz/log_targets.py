"""A node's disk as a target: segments, the synced mark, the identity file.

An input of the log target is a script of damages to a directory whose complete history is known:
bits flipped, ranges zeroed, sectors written to the wrong place, files cut, lost, renamed, swapped
or restored from an old copy. A restart on it finds some prefix of what was written, or less of
groups that it knows to be damaged, or refuses with a declared error. It never finds another value.

A damage that also makes the checksums right is a forgery: no disk produces it (a CRC-32C is not a
signature). In that case the guarantee is smaller: a declared error or a start.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from random import Random
from typing import ClassVar, Final, NamedTuple

import attrs
from crc32c import crc32c

from paxos.ids import Ballot, GroupId
from paxos.step import Record
from storage.disk.memory import MemoryDisk
from storage.errors import DirectoryRefused, DiskFull, WalDamaged
from storage.format import (
    MAGIC_OFFSET,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    SEGMENT_HEADER_BYTES,
    segment_name,
)
from storage.identity import IDENTITY_NAME, boot
from tests.fuzz.engine import Target, feature_of
from tests.fuzz.mutate import Sample, number
from tests.storage.log_maker import (
    CLUSTER,
    NODE,
    Author,
    Image,
    accept,
    concerned,
    differences,
    image_of,
    images,
    is_salvaged,
    start,
    sync,
)

DISK_BYTES_MAX: Final = 1 << 20
STEP: Final = struct.Struct(">BBHHH")
"""op, file, at, size, argument."""
SCENES: Final = ((1, 3), (3, 4), (2, 5))
"""Segments and seed of each directory."""
STEPS_MAX: Final = 64
GROUPS_MAX: Final = 8
"""More than there are in any scene."""
_MAGIC: Final = RECORD_MAGIC.to_bytes(2, "big")
HEADER_CRC_AT: Final = 128
"""Its position in a segment's header; a second copy, if there is one, is half a sector further."""
RECORD_KINDS: Final = 9
"""One more than there are, to include an unknown one."""


class Scene(NamedTuple):
    files: dict[str, bytes]
    older: tuple[dict[str, bytes], ...]
    """The same directory at earlier moments."""
    images: list[Image]
    """What a restart may find: one image for each prefix of what was written."""

    def wrote(self, group: int, slot: int, data: bytes) -> bool:
        """Whether this was ever written for the slot."""
        return any(
            group in image and image[group].entries.get(slot) == data for image in self.images
        )


@cache
def scene(segments: int, seed: int) -> Scene:
    """A directory with some synced records and an unsynced tail, and all of its past."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    author = Author(Random(seed), size_max=40)
    records: list[Record] = []
    older = []
    while wal.statistics().segments < segments or len(records) < 12:
        for record in author.records(4):
            records.append(record)
            wal.stage(record)
        older.append(_files(disk))
        sync(wal)
    for record in author.records(3):
        records.append(record)
        wal.stage(record)
    staged = wal.take()
    assert staged is not None
    wal.write(staged)  # and the process ends before the log hears of it
    return Scene(_files(disk), tuple(older), images(records))


def _files(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.names()}


@attrs.define
class _Damage:
    """A directory under a script."""

    files: dict[str, bytearray]
    older: tuple[dict[str, bytes], ...]
    forged: bool = False

    def name(self, index: int) -> str:
        names = sorted(self.files)
        return names[index % len(names)]

    def records(self, data: bytearray) -> list[int]:
        """Positions of everything that looks like a record's header."""
        found, at = [], data.find(_MAGIC, SEGMENT_HEADER_BYTES)
        while at >= 0:
            found.append(at - MAGIC_OFFSET)
            at = data.find(_MAGIC, at + 1)
        return found

    def step(self, op: int, file: int, at: int, size: int, argument: int) -> None:
        if not self.files:
            return
        name = self.name(file)
        _OPERATIONS[op % len(_OPERATIONS)](self, name, at, size, argument)


def _flip(damage: _Damage, name: str, at: int, _size: int, argument: int) -> None:
    data = damage.files[name]
    if data:
        data[at % len(data)] ^= 1 << argument % 8


def _fill(damage: _Damage, name: str, at: int, size: int, argument: int) -> None:
    data = damage.files[name]
    if data:
        at %= len(data)
        size = min(size, len(data) - at)
        fill = (bytes(size), b"\xff" * size, Random(argument).randbytes(size))[argument % 3]
        data[at : at + size] = fill


def _cut(damage: _Damage, name: str, at: int, size: int, argument: int) -> None:
    """Shorter, or longer."""
    data = damage.files[name]
    if argument % 4:
        del data[at % (len(data) + 1) :]
    else:
        data += bytes(size % 5_000)


def _misplace(damage: _Damage, name: str, at: int, size: int, argument: int) -> None:
    """A sector, or any piece, from another place in this or another file."""
    data = damage.files[name]
    source = damage.files[damage.name(argument)] if argument % 3 else data
    if not data or not source:
        return
    if size % 2:
        at, start, size = at // 512 * 512, argument % 64 * 512, 512
    else:
        start = argument % len(source)
    piece = source[start : start + size]
    at %= len(data)
    data[at : at + len(piece)] = piece


def _lose(damage: _Damage, name: str, _at: int, _size: int, argument: int) -> None:
    """A file disappears, gets another's name, or changes places with it."""
    other = damage.name(argument)
    if argument % 3 == 0:
        del damage.files[name]
    elif argument % 3 == 1:
        files = damage.files
        files[name], files[other] = files[other], files[name]
    else:
        damage.files[segment_name(1 + argument % 7)] = damage.files.pop(name)


def _copy(damage: _Damage, name: str, _at: int, _size: int, argument: int) -> None:
    damage.files[segment_name(1 + argument % 7)] = bytearray(damage.files[name])


def _bring_back(damage: _Damage, name: str, _at: int, _size: int, argument: int) -> None:
    """One file, or all, in a former state."""
    older = damage.older[argument % len(damage.older)]
    if argument % 5 == 0:
        damage.files = {old: bytearray(data) for old, data in older.items()}
    elif name in older:
        damage.files[name] = bytearray(older[name])


def _set_field(damage: _Damage, name: str, at: int, size: int, argument: int) -> None:
    """Change a number in a record's header."""
    data = damage.files[name]
    records = damage.records(data)
    if records:
        width = (1, 2, 4, 8)[size % 4]
        begin = records[at % len(records)] + size // 4 % (RECORD_HEADER_BYTES // width) * width
        data[begin : begin + width] = number(Random(argument), width)


def _forge_record(damage: _Damage, _name: str, at: int, size: int, argument: int) -> None:
    """One more record, of any kind and with any numbers, and with correct checksums."""
    disk = _disk(damage.files)
    try:
        wal, _ = start(disk)
    except (WalDamaged, DirectoryRefused, DiskFull):
        return
    damage.forged = True
    dice = Random(argument)
    small = dice.random() < 0.5
    group, slot, applied = (
        int.from_bytes(b"\0\1" if small else number(dice, width), "big") for width in (4, 8, 8)
    )
    ballot = Ballot(at if small else (1 << 62) + at, NODE)
    payload = (b"\1x", b"\0", bytes(12), b"\xff", dice.randbytes(20))[size % 5]
    kind, flags = dice.randrange(RECORD_KINDS), dice.randrange(2)
    wal._append(kind, flags, GroupId(group), slot, ballot, applied, (payload,), len(payload))
    sync(wal)
    damage.files = {name: bytearray(data) for name, data in _files(disk).items()}


def _forge_header(damage: _Damage, name: str, at: int, size: int, argument: int) -> None:
    """Change a number in a segment's header, with a correct checksum."""
    data = damage.files[name]
    if len(data) < SEGMENT_HEADER_BYTES or not data.startswith(b"EVENKEEL"):
        return
    damage.forged = True
    width = (1, 4, 8)[size % 3]
    begin = 8 + at % (HEADER_CRC_AT - 8 - width)
    data[begin : begin + width] = number(Random(argument), width)
    checksum = crc32c(bytes(data[:HEADER_CRC_AT]))
    data[HEADER_CRC_AT : HEADER_CRC_AT + 4] = checksum.to_bytes(4, "big")
    half = SEGMENT_HEADER_BYTES // 2
    if data[half : half + 8] == b"EVENKEEL":
        data[half : 2 * half] = data[:half]


_Operation = Callable[[_Damage, str, int, int, int], None]
_OPERATIONS: Final[tuple[_Operation, ...]] = (
    _flip, _flip, _flip, _flip, _fill, _fill, _cut, _misplace, _misplace, _lose, _copy,
    _bring_back, _set_field, _set_field, _forge_record, _forge_header,
)  # fmt: skip


class Log(Target):
    """The first byte chooses the directory; each further eight bytes are one damage."""

    name: ClassVar = "write-ahead-log"

    def samples(self, dice: Random) -> Iterator[Sample]:
        for which in range(len(SCENES)):
            yield Sample(bytes([which]))
            for op in range(len(_OPERATIONS)):
                yield Sample(
                    bytes([which]) + STEP.pack(op, 2, *(dice.randrange(1 << 16) for _ in range(3)))
                )

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """Add, change or drop a step."""
        data = bytearray(sample.data or b"\0")
        steps = (len(data) - 1) // STEP.size
        kind = dice.random()
        if steps and (kind < 0.2 or steps >= STEPS_MAX):
            at = 1 + STEP.size * dice.randrange(steps)
            del data[at : at + STEP.size]
        elif steps and kind < 0.5:
            data[1 + dice.randrange(STEP.size * steps)] = dice.randrange(256)
        else:
            small = dice.random() < 0.3
            values = (
                dice.choice((0, 1, 2, 64, 512)) if small else dice.randrange(5_000)
                for _ in range(3)
            )
            data += STEP.pack(dice.randrange(len(_OPERATIONS)), dice.randrange(8), *values)
        if dice.random() < 0.05:
            data[0] = dice.randrange(len(SCENES))
        return bytes(data)

    def run(self, data: bytes) -> Iterable[str]:
        which = data[0] % len(SCENES) if data else 0
        made = scene(*SCENES[which])
        damage = _Damage({name: bytearray(one) for name, one in made.files.items()}, made.older)
        for at in range(1, min(len(data), STEP.size * STEPS_MAX) - STEP.size + 1, STEP.size):
            damage.step(*STEP.unpack_from(data, at))
        disk = _disk(damage.files)
        how = "forged" if damage.forged else "damaged"
        try:
            if damage.forged:
                start(disk)
                return (f"{how} started",)
            return _restarted(disk, made)
        except (WalDamaged, DirectoryRefused) as refusal:
            what = refusal.what.partition(",")[0] if isinstance(refusal, WalDamaged) else refusal
            return (f"{how} {type(refusal).__name__} {feature_of(ValueError(what))}",)
        except DiskFull:
            if not damage.forged:
                raise
            return ("forged: the segment is larger than this disk",)


def _disk(files: dict[str, bytearray]) -> MemoryDisk:
    disk = MemoryDisk(capacity_bytes=DISK_BYTES_MAX)
    for name, data in files.items():
        file = disk.create(name)
        file.pwritev([bytes(data)], 0)
        file.fdatasync()
    disk.sync_directory()
    return disk.clone()


def _restarted(disk: MemoryDisk, made: Scene) -> tuple[str, ...]:
    """Everything that a restart finds was written; it can be written to and restarted, and the same
    is found again.

    If it reports damage, less than any prefix may be left, but nothing that was not written.
    """
    wal, recovered = start(disk)
    found = image_of(wal, recovered)
    damaged = bool(recovered.damage)
    if damaged:
        hit = concerned(recovered, range(GROUPS_MAX))
        assert any(is_salvaged(found, hit, image) for image in made.images), (
            f"{recovered.damage}: {differences(found, made.images[-1])}"
        )
    else:
        assert found in made.images, differences(found, made.images[-1])
    _check_written(found, made)
    wal.stage(accept(99, b"after", group=5))
    sync(wal)
    disk.close()
    wal, recovered = start(disk)
    again = image_of(wal, recovered)
    assert again.pop(5).entries == {99: b"\x01after"}
    _check_written(again, made)
    if found not in made.images:
        return ("damaged, and it knows",)
    assert again == found or damaged, differences(again, found)
    last = len(made.images) - 1
    position = max(at for at, image in enumerate(made.images) if image == found)
    return ("damaged whole" if position == last else "damaged prefix",)


def _check_written(found: Image, made: Scene) -> None:
    for group, image in found.items():
        for slot, data in image.entries.items():
            assert made.wrote(group, slot, data), f"group {group}, slot {slot}: {data.hex()}"


class IdentityFile(Target):
    """The file that names a directory's owner; an operator may read it, and edit it."""

    name: ClassVar = "identity"
    declared = (DirectoryRefused,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        disk = MemoryDisk()
        boot(disk, CLUSTER, NODE)
        yield Sample(disk.content(IDENTITY_NAME))
        disk.close()
        boot(disk, CLUSTER, NODE, first=1_800_000_000_000)
        yield Sample(disk.content(IDENTITY_NAME))

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """Half of the time with a correct checksum."""
        data = super().mutate(sample, dice, pool)
        text, found, _ = data.rpartition(b"crc32c ")
        if not found or dice.random() < 0.5:
            return data
        if dice.random() < 0.3:
            value = dice.choice((b"-1", b"0", b"9" * 19, b"9" * 30, b"9" * 400, b"1_0", b"+7"))
            text = text.replace(b"incarnation ", b"incarnation " + value, 1)
        return text + b"crc32c %08x\n" % crc32c(text)

    def run(self, data: bytes) -> Iterable[str]:
        disk = _disk({IDENTITY_NAME: bytearray(data)})
        identity = boot(disk, CLUSTER, NODE)
        assert (identity.cluster, identity.node) == (CLUSTER, NODE)
        assert 0 < identity.incarnation < 1 << 63, "an incarnation that no record can hold"
        disk.close()
        assert boot(disk, CLUSTER, NODE).incarnation == identity.incarnation + 1
        return (f"has log: {identity.has_log}",)


def log_targets() -> list[Target]:
    return [Log(), IdentityFile()]
