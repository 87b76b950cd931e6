"""Disk reads for fetches whose data is not in memory: in a thread, while the loop continues.

The reads of one request are one job, and only few jobs are with the thread at a time: so little
memory is held, and while a disk hangs, the other jobs wait here, where they are counted and time
out. A fetch that was answered meanwhile no longer wants its job. A job returns what it read as it
is, errors included, and the reader interprets it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs

from broker.ports import AppliedLog, Worker
from broker.reads.reader import Got, Key, Missing, Reader
from broker.state_machine.partition import PartitionState
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from paxos.entry import Buffer
from storage.errors import StorageError

WITH_THE_THREAD_MAX: Final = 2
"""So that the thread has something to do while the loop handles the last result."""

Given: TypeAlias = dict[Key, "Got | StorageError"]


@attrs.define(eq=False)
class _Job:
    missing: Sequence[Missing]
    done: Callable[[Given], None]
    wanted: bool = True


class DiskReads:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting: deque[_Job] = deque()
        self._given = 0
        """Jobs so far."""

    def __len__(self) -> int:
        return len(self._waiting) + self._given

    def read(self, missing: Sequence[Missing], done: Callable[[Given], None]) -> Callable[[], None]:
        """Have all of it read, and call `done` on the loop; the returned function cancels the job.
        The number of waiting jobs is bounded by the parked fetches
        (broker.delayed.delayed_fetches)."""
        job = _Job(missing, done)
        self._waiting.append(job)
        self._go()
        return partial(self._give_up, job)

    @staticmethod
    def _give_up(job: _Job) -> None:
        job.wanted, job.missing = False, ()

    def _go(self) -> None:
        while self._waiting and self._given < WITH_THE_THREAD_MAX:
            job = self._waiting.popleft()
            if job.wanted:
                self._given += 1
                self._worker.submit(partial(_read_all_of, job), partial(self._read, job))

    def _read(self, job: _Job, given: Given) -> None:
        self._given -= 1
        if job.wanted:
            job.done(given)
        self._go()


def _read_all_of(job: _Job) -> Given:
    """Runs in the thread; returns nothing if the job was cancelled."""
    return _read(job.missing)


def _read(missing: Sequence[Missing]) -> Given:
    given: Given = {}
    for one in missing:
        try:
            given[one.key] = one.read()
        except StorageError as error:
            given[one.key] = error
    return given


def read_waiting(
    tail: Tail,
    log: AppliedLog,
    statistics: BrokerStatistics,
    partition: PartitionState,
    offset: int,
    bytes_max: int,
) -> tuple[Sequence[Buffer], int]:
    """What a fetch finally gets; for programs without a loop, which may wait for the disk."""
    given: Given = {}
    while True:
        reader = Reader(tail, log, statistics, given)
        chunks, size = reader.read(partition, offset, bytes_max, at_least_one=True)
        if not reader.missing:
            return chunks, size
        given = {**reader.got, **_read(reader.missing)}
