"""A cluster whose nodes can be ordered to fail, while a prober asks every node all the time."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs
import pytest
import trio

from cluster import status
from cluster.launcher import Launcher, StartError
from cluster.recorder import Recorder
from cluster.spec import ClusterSpec
from cluster.state import NodeState
from tests.cluster.scenery import observed, three_nodes
from tests.exam.points import CRASHED

MIB: Final = 1 << 20
PATIENCE_S: Final = 60.0
LOOK_EVERY_S: Final = 0.02
WATCH_EVERY_S: Final = 0.1
SMALL_SEGMENTS: Final = (
    f"storage.segment_bytes={MIB}",
    f"storage.low_water_bytes={8 * MIB}",
    f"storage.reserve_bytes={4 * MIB}",
)


@attrs.define
class Hurting:
    """A running cluster, and the failures its nodes can be given."""

    cluster: Launcher
    marks: Recorder
    _orders: Path

    def order(self, node: int, name: str, text: str) -> None:
        """Write an order; the node sees all of it or nothing."""
        path = self._orders / str(node) / name
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").rename(path)

    def recall(self, node: int, name: str) -> None:
        (self._orders / str(node) / name).unlink()

    async def obeyed(self, node: int, name: str) -> None:
        """Wait until the node has begun to carry it out."""
        path = self._orders / str(node) / name
        await until_true(lambda: not path.exists(), f"node {node} obeys: {name}")

    async def died(self, node: int) -> None:
        """Wait until the node has died, as ordered."""
        await until_true(
            lambda: self.cluster.state_of(node) == NodeState.EXITED, f"node {node} dies"
        )
        assert self.cluster.exit_code_of(node) == CRASHED

    async def restart_to_die(self, node: int) -> None:
        """Start the node with an order to die, which it may obey before or after it is ready."""
        try:
            await self.cluster.restart(node)
        except StartError:
            assert self.cluster.exit_code_of(node) == CRASHED

    async def watch(self) -> None:
        """Write down what the nodes report about themselves, until cancelled."""
        while True:
            view = await status.collect(self.cluster.spec, self.cluster.now(), timeout_s=2)
            self.marks.ended(observed(view))
            await trio.sleep(WATCH_EVERY_S)


async def until_true(condition: Callable[[], bool], what: str) -> None:
    with trio.move_on_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (what happens elsewhere sets no event of ours)
            await trio.sleep(LOOK_EVERY_S)
        return
    pytest.fail(f"not within {PATIENCE_S:.0f} s: {what}")


@asynccontextmanager
async def hurting(
    tmp_path: Path, *overrides: str, configs: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Hurting]:
    orders = tmp_path / "orders"

    def command(spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
        (orders / str(node_id)).mkdir(parents=True, exist_ok=True)
        start = [sys.executable, "-P", "-m", "tests.exam.hurt_node", str(orders / str(node_id))]
        sets = [word for override in overrides for word in ("--set", override)]
        config = ["--config", str(spec.config_path(node_id)), *sets]
        return [*start, *config, "--parent-pid", str(os.getpid())]

    told = ("log.level=debug", *overrides)
    async with three_nodes(tmp_path, *told, command=command, configs=configs) as cluster:
        with Recorder(cluster.spec.data_dir / "history-marks.jsonl") as marks:
            yield Hurting(cluster, marks, orders)
