"""The simulated disks of a node: records in a list, or the real write-ahead log on a memory disk.

Both are used the same way, as the shell uses its log: `append` at once, `begin` takes all that was
appended for one fsync, `end` when that fsync has taken its time. A power cut keeps of what was not
synced a prefix of the records (RecordDisk), or any subset of sectors, from which the recovery of
`storage/` must make a prefix (WalDisk).
"""

import random
from typing import Final, Protocol

from paxos.ids import GroupId, Incarnation, NodeId, Slot
from paxos.replica import Recovered
from paxos.step import Record
from simulator.recovery import Restart, restarts
from storage import identity
from storage.memory_disk import MemoryDisk
from storage.model import WalConfig, WriteBatch
from storage.opening import open_wal
from storage.wal import Wal

SEGMENT_BYTES: Final = 64 * 1024
CLUSTER: Final = "simulated"


class Disk(Protocol):
    """`durable` lists what has become durable since it was last emptied, for the checkers."""

    durable: list[Record]

    def boot(self) -> tuple[Incarnation, dict[GroupId, Restart]]:
        """Recover, and count the boot durably."""

    def append(self, records: list[Record]) -> None: ...

    @property
    def settled(self) -> bool:
        """Whether all that was appended is durable."""

    def begin(self) -> bool:
        """Start an fsync of all that was appended; False where there is nothing."""

    def end(self) -> None: ...

    def cut_power(self, chance: random.Random) -> None: ...


class RecordDisk:
    def __init__(self) -> None:
        self.durable: list[Record] = []
        self._platter: list[Record] = []
        self._cached: list[Record] = []
        self._syncing = 0
        self._boots = 0
        self.keep_at_cut: int | None = None
        """For scripts: how many un-synced records survive the next power cut; None: chance says."""

    def boot(self) -> tuple[Incarnation, dict[GroupId, Restart]]:
        self._boots += 1
        return Incarnation(self._boots), restarts(self._platter)

    def append(self, records: list[Record]) -> None:
        self._cached.extend(records)

    @property
    def settled(self) -> bool:
        return not self._cached

    def begin(self) -> bool:
        assert not self._syncing
        self._syncing = len(self._cached)
        return self._syncing > 0

    def end(self) -> None:
        self._keep(self._syncing)
        self._syncing = 0

    def cut_power(self, chance: random.Random) -> None:
        kept = chance.randint(0, len(self._cached))
        self._keep(kept if self.keep_at_cut is None else min(self.keep_at_cut, len(self._cached)))
        self.keep_at_cut = None
        self._cached.clear()
        self._syncing = 0

    def lose_tail(self, count: int) -> None:
        """A disk that lied: the last `count` records were acknowledged, and are gone."""
        del self._platter[len(self._platter) - count :]

    def _keep(self, count: int) -> None:
        kept = self._cached[:count]
        del self._cached[:count]
        self._platter.extend(kept)
        self.durable.extend(kept)


class PowerCut(BaseException):
    """Raised out of an fdatasync that the power cut prevented."""


class CuttableDisk(MemoryDisk):
    """Its power can be cut between the writes of a batch and their fdatasync."""

    def __init__(self) -> None:
        super().__init__()
        self.cutting = False

    def touch(self, operation: str, name: str) -> None:
        if self.cutting and operation == "fdatasync":
            raise PowerCut
        super().touch(operation, name)


class WalDisk:
    def __init__(self, node: NodeId) -> None:
        self.durable: list[Record] = []
        self._node = node
        self._files = CuttableDisk()
        self._wal: Wal | None = None
        self._staged: list[Record] = []
        self._batch: tuple[WriteBatch, list[Record]] | None = None

    def boot(self) -> tuple[Incarnation, dict[GroupId, Restart]]:
        files = self._files
        files.close()
        who = identity.boot(files, CLUSTER, self._node)
        wal, recovered = open_wal(files, who, WalConfig(segment_bytes=SEGMENT_BYTES))
        self._wal = wal
        found = {}
        for group, state in recovered.groups.items():
            assert state.retained_from == 1
            chosen = tuple(
                wal.read_entry(group, Slot(slot)) for slot in range(1, state.applied + 1)
            )
            from_disk = Recovered(
                state.promised, state.votes, state.learned, state.voting, state.floor
            )
            found[group] = Restart(from_disk, chosen)
        return who.incarnation, found

    def append(self, records: list[Record]) -> None:
        assert self._wal is not None
        for record in records:
            self._wal.stage(record)
        self._staged.extend(records)

    @property
    def settled(self) -> bool:
        return not self._staged and self._batch is None

    def begin(self) -> bool:
        assert self._wal is not None
        assert self._batch is None
        batch = self._wal.take()
        if batch is None:
            return False
        self._batch = (batch, self._staged)
        self._staged = []
        return True

    def end(self) -> None:
        assert self._wal is not None
        assert self._batch is not None
        batch, records = self._batch
        self._batch = None
        self._wal.write(batch)
        self._wal.written(batch)
        if self._wal.wants_segment:
            self._wal.prepare_next()
        self.durable.extend(records)

    def cut_power(self, chance: random.Random) -> None:
        files = self._files
        if self._batch is not None and self._wal is not None and chance.random() < 0.7:
            files.cutting = True
            try:
                self._wal.write(self._batch[0])
            except PowerCut:
                pass  # what we asked for
            finally:
                files.cutting = False
        survival = chance.choice((0.0, 0.3, 0.9, 1.0))
        files.crash(lambda: chance.random() < survival)
        self._wal = self._batch = None
        self._staged = []
