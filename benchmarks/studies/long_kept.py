"""`python -m benchmarks.studies.long_kept`: the cost of keeping a few topics longer than the log.

An open loop of 16 KB batches goes through the node's own log on the real disk, one in twenty of a
topic that is kept for ever, while the log turns over several times. There are three strategies for
its batches before a segment of the log may go:

* `drop`     nothing: the floor to compare with;
* `forward`  they are written again at the head of the log, as a log-structured file system cleans
             its segments; the log is their only place, and its window grows by what is live;
* `cold`     a thread appends them to cold segments, one file per partition (storage.cold.store).

Results are the latencies of the batches, from when they were due to when they were durable, and
bytes written per byte produced. docs/adr/0020-cold-segments.md has the figures of one run.
"""

import argparse
import json
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.load.histogram import Histogram
from benchmarks.report.environment import describe
from paxos.entry import batch
from paxos.ids import Ballot, GroupId, Incarnation, NodeId, Slot
from paxos.step import AcceptRecord, LearnedRecord
from storage.cold.store import ColdStore
from storage.disk.files import RealDisk
from storage.format import OFFSET_BITS, Place
from storage.identity import Identity, boot
from storage.log.model import WalConfig
from storage.log.opening import open_wal

CLUSTER: Final = "benchmark"
NODE: Final = NodeId(1)
PRODUCED, COPIED = GroupId(1), GroupId(2)
STRATEGIES: Final = ("drop", "forward", "cold")
COPIES_PER_ROUND: Final = 4
"""Batches written again with each batch that is produced: more would cause a noticeable pause."""
NS: Final = 1_000_000_000
ENDLESS: Final = Slot(1 << 60)


@attrs.frozen(kw_only=True)
class Load:
    batch_bytes: int
    per_second: int
    turnovers: int
    window_segments: int
    segment_bytes: int
    long_kept_percent: int
    partitions: int
    """Of the long-kept topic."""

    @property
    def batches(self) -> int:
        return self.turnovers * self.window_segments * self.segment_bytes // self.batch_bytes


@attrs.define(eq=False)
class _Cleaning:
    """A segment about to go, and its live batches that have not been read yet."""

    number: int
    live: deque[tuple[Place, int, int]]


class Trial:
    """One strategy over one fresh directory."""

    def __init__(self, directory: Path, load: Load, strategy: str) -> None:
        self._load, self._strategy = load, strategy
        self._disk = RealDisk(directory)
        identity: Identity = boot(self._disk, CLUSTER, NODE, first=Incarnation(1))
        config = WalConfig(segment_bytes=load.segment_bytes)
        self._wal, _ = open_wal(self._disk, identity, config)
        self._cold = ColdStore(self._disk, identity)
        self._live: dict[int, list[tuple[Place, int, int]]] = {}
        """For each segment: place, size and partition of its long-kept batches."""
        self._ends = [0] * load.partitions
        self._cleaning: _Cleaning | None = None
        self._copied = 0
        self._todo: queue.SimpleQueue[list[tuple[Place, int, int]] | None] = queue.SimpleQueue()
        self._settled = threading.Event()
        self._stopping = False
        self._latencies: list[int] = []
        self._disturbed: list[int] = []
        """Latencies of batches that were written while long-kept data was copied."""
        self.failures: list[Exception] = []

    def run(self) -> dict[str, Any]:
        threads = [threading.Thread(target=one) for one in (self._prepare, self._settle)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        try:
            self._produce()
        finally:
            self._stopping = True
            self._todo.put(None)
            for thread in threads:
                thread.join()
        if self.failures:
            raise self.failures[0]
        return self._result(time.monotonic() - began)

    def _produce(self) -> None:
        load, wal = self._load, self._wal
        payload = bytes(range(256)) * (load.batch_bytes // 256)
        every_ns = NS // load.per_second
        ballot = Ballot(1, NODE)
        due, slot = time.monotonic_ns(), 0
        while slot < load.batches and not self.failures:
            now = time.monotonic_ns()
            if now < due:
                time.sleep((due - now) / NS)
            waiting: list[int] = []
            while due <= time.monotonic_ns() and slot < load.batches:
                slot += 1
                record = AcceptRecord(PRODUCED, Slot(slot), ballot, batch((payload,)), Slot(slot))
                place = wal.stage(record)
                self._keep(slot, place, record.entry.size)
                waiting.append(due)
                due += every_ns
            copying = self._clean()
            taken = wal.take()
            assert taken is not None
            wal.write(taken)
            wal.written(taken)
            done = time.monotonic_ns()
            self._latencies += [done - one for one in waiting]
            if copying:
                self._disturbed += [done - one for one in waiting]

    def _keep(self, slot: int, place: Place, size: int) -> None:
        if slot % 100 < self._load.long_kept_percent:
            live = self._live.setdefault(place >> OFFSET_BITS, [])
            live.append((place, size, slot % self._load.partitions))

    def _clean(self) -> bool:
        """Do what is needed before the oldest segment goes, then let it go; returns whether
        anything is being copied."""
        wal = self._wal
        if self._cleaning is None:
            number = wal.kept().start
            live = self._live.get(number, [])
            window = self._load.window_segments
            if self._strategy == "forward":  # its live data is kept besides the new data
                window += sum(size for part in self._live.values() for _, size, _ in part) // (
                    self._load.segment_bytes
                )
            if len(wal.kept()) <= window:
                return False
            self._cleaning = _Cleaning(number, deque(live))
            self._settled.clear()
            if self._strategy == "cold":
                self._todo.put(list(live))
        cleaning = self._cleaning
        if self._strategy == "forward":
            self._forward(cleaning)
            if cleaning.live:
                return True
        elif self._strategy == "cold" and not self._settled.is_set():
            return True
        self._live.pop(cleaning.number, None)
        wal.retire({PRODUCED: ENDLESS, COPIED: ENDLESS}, cleaning.number + 1)
        self._cleaning = None
        return self._strategy == "forward"

    def _forward(self, cleaning: _Cleaning) -> None:
        for _ in range(min(COPIES_PER_ROUND, len(cleaning.live))):
            place, size, partition = cleaning.live.popleft()
            self._copied += 1
            entry = batch((bytes(self._read(place, size)[1:]),))
            there = self._wal.stage(LearnedRecord(COPIED, Slot(self._copied), entry, Slot(0)))
            live = self._live.setdefault(there >> OFFSET_BITS, [])
            live.append((there, entry.size, partition))

    def _read(self, place: Place, size: int) -> memoryview:
        return self._wal.read_span(place + 64, size)

    # -- other threads ------------------------------------------------------------------------

    def _prepare(self) -> None:
        try:
            while not self._stopping:
                if self._wal.wants_segment:
                    self._wal.prepare_next()
                time.sleep(0.005)
        except Exception as failure:  # noqa: BLE001  raised again by run
            self.failures.append(failure)

    def _settle(self) -> None:
        try:
            while (live := self._todo.get()) is not None:
                for partition in range(self._load.partitions):
                    mine = [one for one in live if one[2] == partition]
                    base = self._ends[partition]
                    written = [
                        (base + at, base + at + 1, 0, (self._read(place, size),))
                        for at, (place, size, _) in enumerate(mine)
                    ]
                    if written:
                        self._ends[partition] = self._cold.append(partition, written)
                self._settled.set()
        except Exception as failure:  # noqa: BLE001  raised again by run
            self.failures.append(failure)

    def _result(self, seconds: float) -> dict[str, Any]:
        produced = self._load.batches * self._load.batch_bytes
        cold = self._cold.statistics()
        written = self._wal.statistics().bytes_staged + cold.bytes_appended
        return {
            "strategy": self._strategy,
            "seconds": round(seconds, 1),
            "ack_us": _percentiles(self._latencies),
            "ack_us_while_copying": _percentiles(self._disturbed),
            "written_per_byte_produced": round(written / produced, 3),
            "log_segments_at_the_end": len(self._wal.kept()),
            "cold_bytes": cold.bytes_held,
        }


def _percentiles(latencies: list[int]) -> dict[str, int]:
    histogram = Histogram(latencies)
    found = {f"p{one:g}": histogram.percentile(one) // 1000 for one in (50, 99, 99.9)}
    return found | {"max": histogram.max // 1000, "count": len(latencies)}


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.long_kept",
        description="Compare strategies for data that is kept longer than the log.",
    )
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: a new one")
    parser.add_argument("--only", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--rounds", type=int, default=2, help="of all strategies in turn")
    for name, default in (
        ("batch-bytes", 16 * 1024),
        ("per-second", 400),
        ("turnovers", 10),
        ("window-segments", 4),
        ("segment-bytes", 8 << 20),
        ("long-kept-percent", 5),
        ("partitions", 20),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help="default %(default)s")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = options_of(arguments)
    load = Load(
        **{field.name: getattr(options, field.name) for field in attrs.fields(Load)},
    )
    parent = options.directory or Path(tempfile.mkdtemp(prefix="evenkeel-long-kept-"))
    results = []
    for number in range(options.rounds):
        for strategy in options.only:
            directory = parent / f"{number}-{strategy}"
            try:
                results.append(Trial(directory, load, strategy).run())
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            print(json.dumps(results[-1]), flush=True)
    print(json.dumps({"load": attrs.asdict(load), **describe(parent)}))
    if options.directory is None:
        parent.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
