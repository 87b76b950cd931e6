"""Opening a node's log: recover what is there, or begin; only then is anything staged."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from paxos.ids import SLOT_ZERO, GroupId, Slot
from paxos.step import VotingRecord
from storage.disk.files import Disk, write_all
from storage.errors import NoSegment
from storage.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    first_seed,
    place_of,
    segment_name,
)
from storage.identity import Identity, mark_log_created
from storage.log.index import GroupState
from storage.log.log_state import LogState
from storage.log.model import Recovered, RecoveredGroup, WalConfig
from storage.log.recovery import Recovery
from storage.log.segments import SegmentFiles
from storage.log.synced_mark import open_mark
from storage.log.wal import Wal
from storage.log.walk import Hole

NO_BASES: Final[Mapping[GroupId, tuple[Slot, int]]] = MappingProxyType({})


def open_wal(
    disk: Disk,
    identity: Identity,
    config: WalConfig,
    expected: Iterable[GroupId] = (),
    bases: Mapping[GroupId, tuple[Slot, int]] = NO_BASES,
) -> tuple[Wal, Recovered]:
    """Recover the log of a directory that `identity.boot` has locked, or begin a new one.

    `bases`: for each group with a checkpoint (checkpoints.py), its slot and the segment from which
    it needs the log. If damage may have hit any group, the `expected` ones are concerned even if
    none of their records is left.

    Raises:
        WalDamaged: the log does not hold what was written to it, and nobody knows how much of it is
            missing; the node must not start.
        DirectoryRefused: the log is another node's, or of another format.
        StorageFailed: the disk fails.
    """
    seed = first_seed(identity.cluster, identity.node)
    mark = open_mark(disk, seed)
    log = Recovery(disk, identity, mark.load(), bases).run(config.segment_bytes)
    if log is None:
        log = _begin_log(disk, identity, config, seed)
    files = SegmentFiles(disk, config.segment_bytes, log.highest_file)
    files.retire(log.retired)
    end = place_of(log.number, log.offset)
    mark.store(end)
    if not identity.has_log:
        mark_log_created(disk, identity)
    wal = Wal(files, mark, identity, config, log)
    damage = tuple(log.new_damage)
    _stop_voting(wal, log, damage, expected)
    groups = {
        group: _recovered_group(wal, state, bases.get(group, (SLOT_ZERO, 0))[0])
        for group, state in sorted(log.groups.items())
    }
    for state in log.groups.values():
        state.votes.clear()
    return wal, Recovered(
        groups=groups,
        records=log.records,
        bytes_read=log.bytes_read,
        end=wal.end,
        cut=log.cut,
        damage=damage,
        started_at=log.started_at,
        unattributed=any(hole.group is None for hole in damage),
    )


def _stop_voting(
    wal: Wal, log: LogState, damage: tuple[Hole, ...], expected: Iterable[GroupId]
) -> None:
    """Write the consequences of damage durably, and only then that it is known. What a damaged
    checkpoint has cost shows in what is missing."""
    concerned = {group for group, one in log.groups.items() if one.voting and not one.founded}
    for hole in damage:
        concerned |= {group for group, one in log.groups.items() if log.costs_vote(hole, one)}
        if hole.group is None:
            concerned |= {group for group in expected if group not in log.groups}
    for group in sorted(concerned):
        known = log.groups.get(group, GroupState(group))
        wal.stage(VotingRecord(group, False, max(known.promised, known.floor)))
    for hole in damage:
        wal.note_damage(hole.start, hole.end)
    batch = wal.take()
    if batch is None:
        return
    try:
        wal.write(batch)
    except NoSegment as refused:
        raise refused.full from refused
    wal.written(batch)


def _begin_log(disk: Disk, identity: Identity, config: WalConfig, seed: int) -> LogState:
    """Create the first segment of a new log, durable with its name and its header."""
    present = 1 if segment_name(1) in disk.names() else 0
    files = SegmentFiles(disk, config.segment_bytes, present)
    header = SegmentHeader(
        number=1,
        size=config.segment_bytes,
        previous_end=0,
        oldest=1,
        seed=seed,
        cluster=identity.cluster,
        node=identity.node,
        incarnation=identity.incarnation,
    )
    file = files.ensure(1)
    write_all(file, [header.encode()], 0)
    file.fdatasync()
    return LogState(
        number=1,
        offset=SEGMENT_HEADER_BYTES,
        chain=seed,
        segment_end=config.segment_bytes,
        oldest=1,
        highest_file=1,
        seeds={1: seed},
    )


def _recovered_group(wal: Wal, state: GroupState, base: Slot) -> RecoveredGroup:
    """What a group starts from, its open slots' entries read into memory."""
    group = state.group
    votes = {
        Slot(slot): (ballot, wal.read_recorded(place, size, group, Slot(slot)))
        for slot, (ballot, place, size) in sorted(state.votes.items())
    }
    learned = {slot: wal.read_entry(group, slot) for slot in state.learned_after(state.proven)}
    return RecoveredGroup(
        promised=state.promised,
        voting=state.voting,
        floor=state.floor,
        applied=Slot(state.applied),
        retained_from=Slot(state.first),
        votes=votes,
        learned=learned,
        proven=Slot(state.proven),
        base=base,
        founded=state.founded,
        lost=state.lost_votes(),
    )
