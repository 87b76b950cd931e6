"""What a row of the matrix by language may do to the cluster.

Rows run in threads of their own; the cluster belongs to trio's.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import attrs
import trio

from cluster import health, status
from cluster.launcher import Launcher
from cluster.rolling import rolling_restart
from cluster.state import NodeState
from cluster.state import read as running_state

MOVED_S_MAX: Final = 180.0
READY_S_MAX: Final = 120.0
"""On a machine that other programs keep busy, too."""
BETWEEN_MOVES_S: Final = 1.0
DOWN_S: Final = 4.0
"""How long a killed node stays down: longer than an election."""


@attrs.define
class ClusterFaults:
    """The Faults of `languages`, on a launched cluster."""

    launcher: Launcher
    _targets: Iterator[int]
    _trio: trio.lowlevel.TrioToken

    @classmethod
    def of(cls, launcher: Launcher) -> "ClusterFaults":
        """In trio's thread."""
        targets = itertools.cycle(node.id for node in launcher.spec.nodes)
        return cls(launcher, targets, trio.lowlevel.current_trio_token())

    def move(self) -> None:
        target = next(self._targets)
        trio.from_thread.run(self._all_on, target, trio_token=self._trio)
        time.sleep(BETWEEN_MOVES_S)

    def kill(self) -> None:
        target = next(self._targets)
        trio.from_thread.run(self.launcher.kill, target, trio_token=self._trio)
        time.sleep(DOWN_S)
        trio.from_thread.run_sync(self.launcher.start, target, trio_token=self._trio)
        wait = self.launcher.wait_ready
        trio.from_thread.run(wait, target, READY_S_MAX, trio_token=self._trio)

    def roll(self) -> None:
        spec = self.launcher.spec
        rolling_restart(spec, running_state(spec.data_dir), lambda _: None)

    def calm(self) -> None:
        """Masters are spread again, and each Paxos group has one."""
        trio.from_thread.run(self._even, trio_token=self._trio)

    async def _all_on(self, target: int) -> None:
        await self._place({"all_on": target})
        await self._until(lambda view: set(view.masters().values()) == {target})

    async def _even(self) -> None:
        """All nodes run: a row that failed may have left one down."""
        for node in self.launcher.spec.nodes:
            if self.launcher.state_of(node.id) is not NodeState.RUNNING:
                self.launcher.start(node.id)
            await self.launcher.wait_ready(node.id, READY_S_MAX)
        await self._place({"even": True})
        await self._until(lambda view: view.all_at_ideal)

    async def _place(self, wanted: Mapping[str, object]) -> None:
        """Any node takes it; one that was killed may not be back yet."""
        with trio.fail_after(READY_S_MAX):
            for node in itertools.cycle(self.launcher.spec.nodes):
                with suppress(health.HealthError):
                    await health.place(node.http, wanted)
                    return
                await trio.sleep(0.1)

    async def _until(self, true: Callable[[status.ClusterView], bool]) -> None:
        with trio.fail_after(MOVED_S_MAX):
            while True:
                if true(await status.collect(self.launcher.spec, self.launcher.now())):
                    return
                await trio.sleep(0.1)
