"""The threads of a simulated node: jobs wait, run in one go, and report later.

When the power is cut, a waiting job may have been started: then the disk stops at one of its
operations, and of what it had written the sectors survive that happen to.
"""

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from paxos.ids import MS
from simulator.environment.dice import between, dice
from simulator.node.crash_points import Boundary
from simulator.node.host import Host
from simulator.node.wal_disk import WalDisk
from storage.disk.memory import PowerCut
from storage.errors import StorageError, StorageFailed

T = TypeVar("T")
WORK_NS_MAX: Final = 40 * MS
HEARD_NS_MAX: Final = 30 * MS
STOPS: Final = ("write", "fdatasync", "rename", "fsync")
STARTED_CHANCE: Final = 0.7


class Jobs:
    """One thread (broker.ports.Worker) of one life of a node. `writes`: it changes the disk."""

    def __init__(
        self, node: Host, disk: WalDisk | None, chance: random.Random, *, writes: bool
    ) -> None:
        self._node, self._life, self._disk, self._chance = node, node.life, disk, chance
        self._writes = writes
        self._todo: deque[tuple[Callable[[], Callable[[], None]], Callable[[], object]]] = deque()
        self._busy = False
        if writes:
            assert disk is not None
            disk.in_hand.append(self._cut)

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        def job() -> Callable[[], None]:
            try:
                return partial(done, work())
            except StorageError as error:
                return partial(self._raise if failed is None else failed, error)

        self._todo.append((job, work))
        if not self._busy:
            self._busy = True
            self._later(WORK_NS_MAX, self._work)

    def _later(self, most_ns: int, call: Callable[..., None], *args: object) -> None:
        self._node.world.loop.after(between(self._chance, MS, most_ns), call, *args)

    @property
    def _gone(self) -> bool:
        return not (self._node.up and self._node.life == self._life)

    def _work(self) -> None:
        if self._gone:
            return
        if self._writes:
            assert self._disk is not None
            self._node.reach(Boundary.JOB_GIVEN)
            self._disk.arm()
        job, _ = self._todo.popleft()
        result = job()
        if self._writes:
            self._node.reach(Boundary.JOB_DONE)
        self._later(HEARD_NS_MAX, self._hear, result)
        if self._todo:
            self._later(WORK_NS_MAX, self._work)
        else:
            self._busy = False

    def _hear(self, result: Callable[[], None]) -> None:
        node, loop = self._node, self._node.world.loop
        if self._gone:
            return
        if loop.now_ns < node.paused_until:
            loop.at(node.paused_until, self._hear, result)
            return
        try:
            result()
        except StorageFailed as failed:
            node.fail(failed)
            return
        if self._writes:
            node.reach(Boundary.JOB_TOLD)

    def _raise(self, error: StorageError) -> None:
        raise error

    def _cut(self, chance: random.Random) -> None:
        """The power goes, in the middle of the next job."""
        assert self._disk is not None
        if self._todo and chance.random() < STARTED_CHANCE:
            self._disk.files.stop(chance.choice(STOPS), after=chance.randrange(3))
            with suppress(PowerCut, StorageError):
                self._todo[0][1]()


class BackgroundWorker(Jobs):
    """A thread that shares nothing and changes nothing: one searches and reads large batches
    (broker.ports.BackgroundWorker), another reads for fetches."""

    def __init__(self, node: Host, name: str) -> None:
        chance = dice(node.world.options.seed, name, node.me, node.life)
        super().__init__(node, None, chance, writes=False)

    def rest(self) -> None:
        """Its work takes no time of the loop."""

    def _hear(self, result: Callable[[], None]) -> None:
        super()._hear(partial(self._node.enter, result))


class Fetcher(BackgroundWorker):
    """The thread that reads for fetches: while the disk hangs, it waits."""

    def __init__(self, node: Host) -> None:
        super().__init__(node, "fetcher")

    def _work(self) -> None:
        if self._node.disk.hung and not self._gone:
            self._later(WORK_NS_MAX, self._work)
        else:
            super()._work()
