"""What a stopped node's directory holds, and whether it is what was written; nothing is changed.

The code of a restart reads checkpoints and log (checkpoints.py, recovery.py), so the result is what
the node would find. In addition, all of the log and of the cold segments can be read, with every
entry decoded, and both copies of what is kept twice are checked.
"""

from collections import Counter
from collections.abc import Iterator

import attrs

from paxos.entry import EntryError, decode
from paxos.ids import Ballot, GroupId, Incarnation, Slot
from storage.checkpoints import CheckpointFiles, checkpoint_name
from storage.cold.format import cold_name
from storage.cold.reading import ColdReading
from storage.disk.files import Disk, read_around
from storage.errors import WalDamaged
from storage.format import (
    OFFSET_BITS,
    OFFSET_MASK,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Place,
    decode_segment_header,
    first_seed,
    header_copies_intact,
    place_of,
    record_intact,
    segment_name,
    segment_number,
)
from storage.identity import Identity, read_identity
from storage.log.index import GroupState
from storage.log.log_state import Cut, LogState
from storage.log.recovery import Recovery
from storage.log.synced_mark import MARK_NAME, SyncedMark


@attrs.frozen(kw_only=True)
class SegmentSeen:
    name: str
    size: int
    used: int
    """Bytes up to the end of the last record; 0: not begun, or retired."""
    incarnation: Incarnation | None


@attrs.frozen(kw_only=True)
class CheckpointSeen:
    name: str
    group: GroupId
    slot: int
    needs: int | None
    """The segment from which it needs the log; None: it is damaged."""
    size: int


@attrs.frozen(kw_only=True)
class PartitionSeen:
    """Cold data of a partition."""

    uid: int
    files: int
    size: int
    start: int
    end: int
    """The offset after the last one."""


@attrs.frozen(kw_only=True)
class GroupSeen:
    group: GroupId
    base: int
    """The slot of the checkpoint that a start begins with; 0 if there is none."""
    founded: bool
    """False: all its checkpoints are damaged, and the log no longer reaches back to slot 1."""
    voting: bool
    promised: Ballot
    first: int
    highest: int
    applied: int
    """How far a restart can replay it."""
    proven: int
    """Every slot up to here is chosen."""
    missing: int
    """Slots from `first` to `proven` that cannot be read from the log."""


@attrs.frozen(kw_only=True)
class Inspection:
    identity: Identity | None
    """None: the directory is empty."""
    segments: tuple[SegmentSeen, ...] = ()
    started_at: int = 1
    """The segment from which a start reads the log."""
    checkpoints: tuple[CheckpointSeen, ...] = ()
    partitions: tuple[PartitionSeen, ...] = ()
    groups: tuple[GroupSeen, ...] = ()
    records: int = 0
    entries: int = 0
    """How many were read back."""
    synced: Place = 0
    """How far the log is known to be durable, by the synced mark."""
    end: Place = 0
    cut: Cut | None = None
    """What the next start will cut off: never acknowledged, so no damage."""
    problems: tuple[str, ...] = ()
    """What is not as it was written, and was not dealt with."""
    known_damage: tuple[str, ...] = ()
    """Damage that the node has found itself and dealt with."""


def inspect(disk: Disk, *, entries: bool) -> Inspection:
    """Look at a directory that no process uses; with `entries`, read all of it.

    Raises:
        DirectoryRefused: it is of another format, or nobody can tell whose it is.
        StorageFailed: the disk fails other than by having lost data.
    """
    identity, damaged = read_identity(disk)
    problems = [f"{name}: damaged; its copy is intact" for name in damaged]
    if identity is None:
        return Inspection(identity=None, problems=tuple(problems))
    problems += _header_problems(disk)
    synced = _synced(disk, identity)
    checkpoints, bases, damage = _checkpoints(disk, identity, every=entries)
    partitions, more = _partitions(disk, identity, every=entries)
    problems += damage + more
    try:
        start = Recovery(disk, identity, synced, bases).examine()
        log = Recovery(disk, identity, synced, bases, whole=True).examine() if entries else start
    except WalDamaged as damage:
        problems.append(f"{damage.file}, byte {damage.byte}: {damage.what}; a start is refused")
        log = None
    if log is None or start is None:
        return Inspection(
            identity=identity,
            segments=tuple(_segments(disk, None)),
            checkpoints=checkpoints,
            partitions=partitions,
            synced=synced,
            problems=tuple(problems),
        )
    states = [state for _, state in sorted(log.groups.items())]
    new = log.new_damage
    problems += map(str, new)
    read = 0
    if entries:
        for state in states:
            for problem in _unreadable(disk, log, state):
                read += problem is None
                problems += [] if problem is None else [problem]
    return Inspection(
        identity=identity,
        segments=tuple(_segments(disk, log)),
        started_at=start.started_at,
        checkpoints=checkpoints,
        partitions=partitions,
        groups=tuple(_seen(state, bases.get(state.group, (0, 0))[0]) for state in states),
        records=log.records,
        entries=read,
        synced=synced,
        end=place_of(log.number, log.offset),
        cut=log.cut,
        problems=tuple(problems),
        known_damage=tuple(str(hole) for hole in log.holes if hole not in new),
    )


def _synced(disk: Disk, identity: Identity) -> Place:
    if MARK_NAME not in disk.names():
        return 0
    return SyncedMark(disk.open(MARK_NAME), first_seed(identity.cluster, identity.node)).load()


def _header_problems(disk: Disk) -> Iterator[str]:
    """Segments with only one intact copy of the header: a start ignores it, an operator may not."""
    for name in disk.names():
        if segment_number(name) is not None:
            data = read_around(disk.open(name), SEGMENT_HEADER_BYTES, 0)
            if header_copies_intact(data) == 1:
                yield f"{name}: one copy of its header is damaged; the other is intact"


def _segments(disk: Disk, log: LogState | None) -> Iterator[SegmentSeen]:
    for name in disk.names():
        number = segment_number(name)
        if number is None:
            continue
        file = disk.open(name)
        header = decode_segment_header(read_around(file, SEGMENT_HEADER_BYTES, 0))
        used = 0
        if log is not None:
            used = log.offset if number == log.number else log.ends.get(number, 0)
        begun = header is not None and header.number == number
        yield SegmentSeen(
            name=name,
            size=file.size(),
            used=used,
            incarnation=header.incarnation if begun and header is not None else None,
        )


def _checkpoints(
    disk: Disk, identity: Identity, *, every: bool
) -> tuple[tuple[CheckpointSeen, ...], dict[GroupId, tuple[Slot, int]], list[str]]:
    """All checkpoints, those that a start would begin with, and problems: of the files that a start
    would read, or of `every` one."""
    files = CheckpointFiles(disk, identity)
    loaded = {group: files.load(group) for group in files.groups()}
    bases = {g: (one.slot, one.needs) for g, one in loaded.items() if one and not one.lost}
    damaged = {name for one in loaded.values() if one for name in one.damaged}
    if every:
        damaged |= {name for name in files.files() if files.check(name) is not None}
    seen = []
    for text in files.files():
        name = checkpoint_name(text)
        assert name is not None
        needs = None if text in damaged else files.needs_of(name)
        size = disk.open(text).size()
        seen.append(
            CheckpointSeen(name=text, group=name.group, slot=name.slot, needs=needs, size=size)
        )
    problems = [f"{name}: the checkpoint is damaged" for name in sorted(damaged)]
    return tuple(seen), bases, problems


def _partitions(
    disk: Disk, identity: Identity, *, every: bool
) -> tuple[tuple[PartitionSeen, ...], list[str]]:
    store = ColdReading(disk, identity)
    held, files = store.held(), Counter(uid for uid, _ in store.files())
    seen: list[PartitionSeen] = []
    problems: list[str] = []
    for uid in store.uids():
        start, end = store.start(uid), store.end(uid)
        assert start is not None
        assert end is not None
        seen.append(PartitionSeen(uid=uid, files=files[uid], size=held[uid], start=start, end=end))
    for uid, base in store.files() if every else ():
        found, intact = store.survey(uid, base)
        problems += map(str, found)
        if not intact:
            problems.append(f"{cold_name(uid, base)}: its header or seal is damaged; mended by use")
    return tuple(seen), problems


def _seen(state: GroupState, base: int) -> GroupSeen:
    kept = state.places[: max(0, state.proven - state.first + 1)]
    beyond = max(0, state.proven - max(state.highest, state.first - 1))
    return GroupSeen(
        group=state.group,
        base=base,
        founded=state.founded,
        voting=state.voting,
        promised=max(state.promised, state.floor),
        first=state.first,
        highest=state.highest,
        applied=state.applied,
        proven=state.proven,
        missing=kept.count(0) + beyond,
    )


def _unreadable(disk: Disk, log: LogState, state: GroupState) -> Iterator[str | None]:
    """For every entry of a group: None, or why it cannot be read."""
    for slot in range(state.first, state.highest + 1):
        place = state.places[slot - state.first]
        if place:
            _, size = state.find(slot)
            yield _problem(disk, log, state.group, Slot(slot), place, size)


def _problem(
    disk: Disk, log: LogState, group: GroupId, slot: Slot, place: Place, size: int
) -> str | None:
    name, offset = segment_name(place >> OFFSET_BITS), place & OFFSET_MASK
    data = memoryview(read_around(disk.open(name), RECORD_HEADER_BYTES + size, offset))
    where = f"{name}, byte {offset} (group {group}, slot {slot})"
    if not record_intact(data, place, log.seeds[place >> OFFSET_BITS]):
        return f"{where}: the record reads differently the second time"
    try:
        decode(data[RECORD_HEADER_BYTES:])
    except EntryError as error:
        return f"{where}: the record holds no entry: {error}"
    return None
