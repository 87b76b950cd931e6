"""Processes of members (hurt_member.py), and the relays through which they reach the nodes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.evenkeel.shared_cluster import ROOT, SharedCluster
from tests.evenkeel.tasks.histories import Line, Reader, What

STEP_S: Final = 60.0
CHUNK: Final = 65536


class Cut:
    """A network between one member and all nodes that can be cut: nothing is closed and nothing is
    lost, it only arrives much later."""

    def __init__(self) -> None:
        self._whole = trio.Event()
        self._whole.set()

    def cut(self) -> None:
        self._whole = trio.Event()

    def heal(self) -> None:
        self._whole.set()

    async def listen(self, nursery: trio.Nursery, port: int) -> int:
        """A relay to that port; returns the relay's own port."""

        async def serve(near: trio.SocketStream) -> None:
            async with near:
                await self._whole.wait()
                try:
                    far = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    return  # the node is down
                async with far, trio.open_nursery() as pumps:
                    pumps.start_soon(self._pump, near, far, pumps.cancel_scope)
                    pumps.start_soon(self._pump, far, near, pumps.cancel_scope)

        listen = partial(trio.serve_tcp, host="127.0.0.1")
        listeners = await nursery.start(listen, serve, 0)
        relay: int = listeners[0].socket.getsockname()[1]
        return relay

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, done: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(CHUNK):
                await self._whole.wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one end has gone, and so the other goes
        done.cancel()


class Members:
    """The processes of one group."""

    def __init__(
        self, cluster: SharedCluster, folder: Path, group: str, *, immortal: bool = False
    ) -> None:
        """`immortal`: with a planted bug, leases that never end."""
        self.cluster = cluster
        self.folder = folder
        self.group = group
        self.immortal = immortal
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.networks: dict[str, Cut] = {}
        self.lines: list[Line] = []
        self._reader = Reader()
        self._orders: dict[str, str] = {}
        (folder / "store").mkdir(parents=True)

    async def add(self, nursery: trio.Nursery, name: str, offset: int) -> None:
        network = self.networks[name] = Cut()
        ports = [node.kafka.port for node in self.cluster.spec.nodes]
        relays = {str(port): await network.listen(nursery, port) for port in ports}
        self._orders[name] = json.dumps(
            {
                "name": name,
                "offset": offset,
                "bootstrap": self.cluster.bootstrap,
                "group": self.group,
                "folder": str(self.folder),
                "relays": relays,
                "immortal": self.immortal,
            }
        )
        self.start(name)

    def start(self, name: str) -> None:
        log = (self.folder / f"log-{name}").open("ab")
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.evenkeel.tasks.hurt_member", self._orders[name]],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT},
            stdout=log,
            stderr=log,
        )
        log.close()

    def signal(self, name: str, which: signal.Signals) -> None:
        self.processes[name].send_signal(which)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        assert process.wait() == -signal.SIGKILL

    def new_lines(self) -> list[Line]:
        """What the members have written since the last call."""
        more = self._reader.more(sorted(self.folder.glob("history-*")))
        self.lines += more
        return more

    async def until(self, condition: Callable[[list[Line]], bool], what: str) -> None:
        """Wait until what the members write from now on satisfies the condition."""
        self.new_lines()
        seen: list[Line] = []
        with trio.move_on_after(STEP_S):
            while True:
                dead = [name for name, one in self.processes.items() if one.poll() is not None]
                assert not dead, f"{dead} ended; see log-{dead[0]}: {self._log(dead[0])}"
                seen += self.new_lines()
                if condition(seen):
                    return
                await trio.sleep(0.1)
        raise AssertionError(f"not within {STEP_S} s: {what}; {self._newest()}")

    async def all_run(self, tasks: set[str], *, without: Collection[str] = ()) -> None:
        """Wait until every task is worked at, from now on, by members other than those named."""

        def everything(lines: list[Line]) -> bool:
            return tasks <= {
                line.task
                for line in lines
                if line.what is What.WORKED and member_of(line) not in without
            }

        await self.until(everything, f"all of {len(tasks)} tasks are run, not by {without}")

    async def all_begin(self, names: Collection[str], since: int = 0) -> None:
        """Wait until each of these has started something, after that many lines."""

        def everybody(_: list[Line]) -> bool:
            recent = self.lines[since:]
            begun = {member_of(line) for line in recent if line.what is What.STARTED}
            return begun >= set(names)

        await self.until(everybody, f"{names} have something to do")

    async def all_work(self, names: Collection[str]) -> None:
        """Wait until each of these has worked at something from now on: a member that has begun may
        have lost everything again when another one came."""

        def everybody(lines: list[Line]) -> bool:
            return set(names) <= {member_of(line) for line in lines if line.what is What.WORKED}

        await self.until(everybody, f"{names} work")

    def _log(self, name: str) -> str:
        return (self.folder / f"log-{name}").read_text()[-2000:]

    def _newest(self) -> str:
        newest = {line.task: line for line in self.lines}
        return "\n".join(str(line) for line in newest.values())


def member_of(line: Line) -> str:
    return line.by.partition("-")[0]


@asynccontextmanager
async def members(
    cluster: SharedCluster, folder: Path, group: str, *, immortal: bool = False
) -> AsyncIterator[Members]:
    crew = Members(cluster, folder, group, immortal=immortal)
    try:
        yield crew
    finally:
        for process in crew.processes.values():
            process.kill()
            process.wait()
