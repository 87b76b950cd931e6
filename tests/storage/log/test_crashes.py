"""Power cuts, failing disks and kills at any moment lose only what was never synced."""

import errno
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from paxos.ids import GroupId, Slot
from paxos.step import Record
from storage.disk.files import RealDisk
from storage.disk.memory import MemoryDisk, PowerCut
from storage.errors import (
    StorageFailed,
)
from storage.log.index import SLOT_GAP_MAX
from tests.cluster.scenery import FULL
from tests.storage.log_maker import (
    Author,
    GroupImage,
    Image,
    Skip,
    differences,
    entries_of,
    image_of,
    images,
    start,
    start_from,
)

GROUP = GroupId(1)


# ---- crashes ------------------------------------------------------------------------------------


class Life:
    """One world of crashes: what was staged, what was synced, and what may be found."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.disk = MemoryDisk(write_bytes_max=self.dice.choice([None, 97, 1500]))
        self.author = Author(self.dice, size_max=self.dice.choice([20, 200, 700]))
        self.records: list[Record | Skip] = []
        self.synced = 0
        self.survival = self.dice.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        self.events: Counter[str] = Counter()

    def survives(self) -> bool:
        return self.dice.random() < self.survival

    def trouble(self) -> None:
        """Make the machine stop, or the disk fail, at one of the next operations."""
        operations = ["write", "fdatasync", "fsync", "rename", "remove"]
        operation = self.dice.choices(operations, [5, 8, 1, 1, 1])[0]
        after = self.dice.choice([0, 0, 0, 1, 2, 5])
        if self.dice.random() < 0.7:
            self.disk.stop(operation, after=after)
        else:
            self.disk.fail(operation, errno.EIO, after=after)

    def end(self) -> None:
        """The process ends, with or without the power."""
        if self.dice.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash(self.survives)

    def restart(self) -> None:
        """Open the log, with crashes while it is opened; compare it with what was staged."""
        while self.dice.random() < 0.3:
            self.trouble()
            try:
                start_from(self.disk)
            except (PowerCut, StorageFailed):
                self.events["crash while opening"] += 1
            self.end()
        self.wal, recovered, self.files, self.bases = start_from(self.disk)
        self.events["started later"] += recovered.started_at > min(self.wal.kept())
        self.events["cut"] += recovered.cut is not None
        behind = recovered.cut.records_after if recovered.cut else 0
        self.events["cut with records behind"] += behind > 0
        found = image_of(self.wal, recovered)
        self.check(found)
        self.author.resume(found)

    def check(self, found: Image) -> None:
        """Exactly the records of a prefix that contains all synced ones, less what was retired."""
        prefixes = images(self.records)
        for at in range(len(self.records), self.synced - 1, -1):
            expected = prefixes[at]
            for number in self.bases:
                expected.setdefault(number, GroupImage())
            for number, group in expected.items():
                base = self.base(number)
                assert self.wal.slots(GroupId(number)).start in (0, base + 1)
                group.applied = group.proven = max(group.applied, base)
                group.entries = {s: e for s, e in group.entries.items() if s > base}
                group.learned = {s: e for s, e in group.learned.items() if s > group.applied}
                group.votes = {s: v for s, v in group.votes.items() if s > group.applied}
            if found == expected:
                del self.records[at:]
                self.synced = at
                return
        expected = prefixes[self.synced]
        raise AssertionError(f"after {self.synced} records: {differences(found, expected)}")

    def base(self, number: int) -> int:
        loaded = self.bases.get(GroupId(number))
        return loaded.slot if loaded else 0

    def checkpoint(self) -> None:
        """Save a group's state, its own or one from a peer, and let old segments of the log go."""
        group = GroupId(self.dice.randrange(3))
        slot = self.author.applied()[group]
        from_peer = self.dice.random() < 0.1
        if from_peer:
            slot = Slot(slot + self.dice.choice([1, 40, 2 * SLOT_GAP_MAX]))
        state = [b"%d" % slot, self.dice.randbytes(self.dice.choice([0, 700]))]
        self.files.save(group, slot, self.wal.needed_from(group, slot), state)
        if from_peer:
            self.wal.skip(group, slot)
            self.author.skip(group, slot)
            self.records.append(Skip(group, slot))
            self.events["skipped"] += 1
        slots = {one: self.files.slot(one) for one in self.files.groups()}
        needs = [self.files.needs(one) for one in self.files.groups()]
        until = {one: slot for one, slot in slots.items() if slot is not None}
        below = min((one for one in needs if one is not None), default=1)
        self.events["retired"] += self.wal.retire(until, below) > 0

    def work(self) -> None:
        """Stage, write, sync, prepare, save and retire, and stop anywhere."""
        rounds = self.dice.randrange(1, 25)
        for number in range(rounds):
            for record in self.author.records(self.dice.choice([1, 3, 6, 20])):
                self.records.append(record)
                self.wal.stage(record)
            saves = self.dice.random() < 0.3
            if number == rounds - 1:
                self.trouble()
                saves = saves and self.dice.random() < 0.3
            try:
                if saves:
                    self.checkpoint()
            except (PowerCut, StorageFailed):
                self.events["crash while saving"] += 1
                return
            staged = len(self.records)
            batch = self.wal.take()
            assert batch is not None
            try:
                if self.dice.random() < 0.5:
                    self.wal.prepare_next()
                self.wal.write(batch)
            except (PowerCut, StorageFailed):
                self.events["crash while writing"] += 1
                return
            self.wal.written(batch)
            self.synced = staged


@pytest.mark.parametrize("base", range(0, 120 if FULL else 60, 60))
def test_power_cuts_lose_only_what_was_not_synced(base: int) -> None:
    """Unsynced sectors and names survive in any subset; none of that is ever called damage."""
    events: Counter[str] = Counter()
    for seed in range(base, base + 60):
        life = Life(seed)
        life.restart()
        for _ in range(6):
            life.work()
            life.end()
            life.restart()
        events += life.events
    wanted = (
        "crash while opening",
        "crash while writing",
        "cut",
        "cut with records behind",
        "crash while saving",
        "retired",
        "started later",
        "skipped",
    )
    assert all(events[name] >= 3 for name in wanted), events


WRITER = """
import pathlib, sys
from storage.disk.files import RealDisk
from storage.log.model import WalConfig
from storage.log.opening import open_wal
from tests.storage.log_maker import accept, start, sync
wal, recovered = start(RealDisk(pathlib.Path(sys.argv[1])), WalConfig(segment_bytes=1 << 16))
slot = wal.slots(1).stop - 1 if recovered.groups else 0
while True:
    for _ in range(5):
        slot += 1
        wal.stage(accept(slot, b"%d" % slot * 50, applied=slot - 1))
    sync(wal)
    print(slot, flush=True)
"""


def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Real processes on the real disk are killed while they write; each continues where one
    died."""
    acknowledged = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            for _ in range(60):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            said = writer.stdout.read().split()  # lines already in the pipe count as well
        acknowledged = int(said[-1]) if said else acknowledged
        disk = RealDisk(tmp_path)
        wal, _ = start(disk)
        entries = entries_of(wal, GROUP)
        assert sorted(entries) == list(range(1, len(entries) + 1))
        assert len(entries) >= acknowledged >= 60 * 5
        assert all(data == b"\x01" + b"%d" % slot * 50 for slot, data in entries.items())
        disk.close()
