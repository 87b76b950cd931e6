"""`python -m benchmarks.studies.bulk`: what it costs a node to store, move and read a megabyte.

One process, the real log and the real cold store in a fresh directory, no network and no cluster:
batches are written to the log, moved to cold segments, and read as a consumer's fetch reads them,
from the log and from the cold segments. Before each step the page cache forgets the files. Results
are the CPU time of the process for a megabyte, kernel included, and wall time. To compare two
commits, run it in both trees in turn.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import attrs

from benchmarks.report.environment import describe
from broker.lifecycle.tiering import JOB_BYTES, STEP_BYTES
from broker.proposals.commands import HEAD, records
from broker.reads.batch_copy import NearbyReader, copy
from broker.reads.disk_reads import read_waiting
from broker.state_machine.partition import PartitionState
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from paxos.entry import batch as entry_of
from paxos.ids import Ballot, GroupId, Incarnation, NodeId, Slot
from paxos.step import AcceptRecord
from storage.cold.store import ColdStore
from storage.disk.files import RealDisk
from storage.format import RECORD_HEADER_BYTES, place_of
from storage.identity import boot
from storage.log.model import WalConfig
from storage.log.opening import open_wal
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

GROUP: Final = GroupId(1)
BALLOT: Final = Ballot(1, NodeId(1))
UID_BYTES: Final = 4
RECORD_BYTES: Final = 1000
PARTITIONS: Final = 12
MB: Final = 1_000_000
WRITTEN_AT_ONCE: Final = 1 << 20
FETCH_BYTES: Final = 1 << 20
"""What a consumer requests of a partition by default."""


@attrs.frozen
class Cost:
    """Of a megabyte, in microseconds."""

    cpu: float
    wall: float


class Node:
    """A log, a cold store and some partitions, as a node has them."""

    def __init__(self, directory: Path, batch_bytes: int, total_bytes: int) -> None:
        self._directory = directory
        self._disk = RealDisk(directory)
        identity = boot(self._disk, "benchmark", NodeId(1), first=Incarnation(1))
        self._wal, _ = open_wal(self._disk, identity, WalConfig(segment_bytes=64 << 20))
        self.cold = ColdStore(self._disk, identity)
        self.partitions = [PartitionState(uid, cold=self.cold) for uid in range(1, PARTITIONS + 1)]
        self._bytes = total_bytes
        self._records = max(1, batch_bytes // RECORD_BYTES)
        value = b"x" * min(batch_bytes, RECORD_BYTES)
        self._batch = build_batch([Record(value)] * self._records)
        self._slot = 0

    def append(self) -> None:
        """Write all batches to the log, the partitions in turn, one fdatasync per megabyte."""
        left, staged = self._bytes, 0
        while left > 0:
            state = self.partitions[self._slot % PARTITIONS]
            self._slot += 1
            data = memoryview(self._batch)
            entry = entry_of(records(state.uid, data))
            place = self._wal.stage(
                AcceptRecord(GROUP, Slot(self._slot), BALLOT, entry, Slot(self._slot - 1))
            )
            at = RECORD_HEADER_BYTES + 1 + HEAD.size + UID_BYTES
            state.append(data, place + at, 1)
            left -= len(data)
            staged += len(data)
            if staged >= WRITTEN_AT_ONCE or left <= 0:
                taken = self._wal.take()
                assert taken is not None
                self._wal.write(taken)
                self._wal.written(taken)
                staged = 0
            if self._wal.wants_segment:
                self._wal.prepare_next(zeros=False)

    def forget_cache(self) -> None:
        """As if data written long ago had left the page cache."""
        for path in self._directory.iterdir():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def settle(self) -> None:
        """Move all data to the cold store, like the tiering thread (broker.lifecycle.tiering)."""
        reader = NearbyReader(self._wal)
        below = place_of(1, 0)
        while below < self._wal.end:
            below += STEP_BYTES
            for state in self.partitions:
                while (plan := state.copy_plan(below)) is not None:
                    copied = copy(reader, plan, JOB_BYTES)
                    assert copied.damaged is None
                    state.mark_tiered(self.cold.append(state.uid, copied.batches))

    def read(self) -> None:
        """Fetch everything, one request per megabyte, from wherever it is."""
        statistics, tail = BrokerStatistics(), Tail(0)
        offsets = [0] * PARTITIONS
        done = 0
        while done < self._bytes:
            for number, state in enumerate(self.partitions):
                if offsets[number] >= state.next_offset:
                    continue
                chunks, size = read_waiting(
                    tail, self._wal, statistics, state, offsets[number], FETCH_BYTES
                )
                offsets[number] += size // len(self._batch) * self._records
                done += size
                del chunks
        assert all(at >= one.next_offset for at, one in zip(offsets, self.partitions, strict=True))
        assert not statistics.damaged_reads


def measure(directory: Path, batch_bytes: int, total_bytes: int) -> dict[str, Cost]:
    return dict(_steps(Node(directory, batch_bytes, total_bytes), total_bytes))


def _steps(node: Node, total_bytes: int) -> Iterator[tuple[str, Cost]]:
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("log written", node.append),
        ("log read", node.read),
        ("settled", node.settle),
        ("cold read", node.read),
    )
    for name, step in steps:
        node.forget_cache()
        cpu, wall = time.process_time(), time.perf_counter()
        step()
        megabytes = total_bytes / MB
        yield (
            name,
            Cost(
                (time.process_time() - cpu) * 1e6 / megabytes,
                (time.perf_counter() - wall) * 1e6 / megabytes,
            ),
        )


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=given, prefix="bulk-") as name:
        yield Path(name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.bulk",
        description="CPU time of a megabyte: log, settling, reads.",
    )
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: a new one")
    parser.add_argument("--megabytes", type=int, default=200, help="default %(default)s")
    parser.add_argument("--batch-bytes", type=int, default=1_000_000, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result is kept")
    options = parser.parse_args(arguments)
    rounds: list[dict[str, Cost]] = []
    for number in range(options.rounds):
        with _directory(options.directory) as directory:
            rounds.append(measure(directory, options.batch_bytes, options.megabytes * MB))
        told = ", ".join(f"{name} {one.cpu:,.0f}" for name, one in rounds[-1].items())
        print(f"round {number + 1}: {told} us CPU/MB", flush=True)
    print(f"\n{'':<12}{'CPU us/MB':>10}{'wall us/MB':>12}")
    for name in rounds[0]:
        cpu = median(one[name].cpu for one in rounds)
        wall = median(one[name].wall for one in rounds)
        print(f"{name:<12}{cpu:>10,.0f}{wall:>12,.0f}")
    if options.json is not None:
        context = describe(options.directory or Path(tempfile.gettempdir()))
        result = {"context": context, "rounds": [attrs.asdict(_Round(one)) for one in rounds]}
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


@attrs.frozen
class _Round:
    costs: dict[str, Cost]


if __name__ == "__main__":
    sys.exit(main())
