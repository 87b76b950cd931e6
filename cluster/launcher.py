"""Runs a cluster of real node processes on this machine, for as long as a context lasts.

The launcher is the parent of every node: it starts them, records how they end, carries out requests
from the control socket, and stops them all at the end. If it is killed itself, the kernel kills the
nodes (child.py), and they also check for their parent (`--parent-pid`).
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import Final, TypeAlias

import attrs
import trio

from cluster import chaos, control, health, state
from cluster.process import Process, tail
from cluster.programs import environment, program
from cluster.spec import ClusterSpec, SpecError, grown, save, shrunk
from cluster.state import NodeNow, NodeState, State
from cluster.waiting import LOOK_EVERY_S, WaitReporter, missing
from runtime.config.config import ConfigError

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 10.0
LEFT_ALONE_S_MAX: Final = 0.5
"""A node without a majority cannot hand over anything: it need not wait for that when all stop."""
READY_LOOK_EVERY_S: Final = 0.05
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""A node's log that is larger than this at its start is moved to `.1`, replacing the previous
one."""

Command: TypeAlias = Callable[[ClusterSpec, int, Sequence[str]], list[str]]
"""(spec, node id, overrides) -> what to run; a parameter, so that tests can run something small."""


class StartError(RuntimeError):
    """A node did not become ready; the message has the end of its log."""


def node_command(spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
    config = str(spec.config_path(node_id))
    sets = [word for override in overrides for word in ("--set", override)]
    parent = ["--parent-pid", str(os.getpid())]
    return program("node", "--config", config, *sets, *parent)


@attrs.define
class _Node:
    process: Process
    state: NodeState = NodeState.RUNNING
    was_ready: bool = False


@attrs.define
class Launcher:
    """The running cluster; made by `launch`."""

    spec: ClusterSpec
    _overrides: Sequence[str]
    _env: Mapping[str, str]
    _command: Command
    _report: Callable[[str], None]
    _control: Path
    _nursery: trio.Nursery
    _nodes: dict[int, _Node] = attrs.Factory(dict)
    _one_at_a_time: trio.Lock = attrs.Factory(trio.Lock)
    _stopping: bool = False
    hurry: trio.Event = attrs.Factory(trio.Event)
    """Set to kill what does not stop at once (a second Ctrl-C)."""

    def state_of(self, node_id: int) -> NodeState:
        return self._nodes[node_id].state

    def pid_of(self, node_id: int) -> int:
        return self._nodes[node_id].process.pid

    def exit_code_of(self, node_id: int) -> int | None:
        """How the node's last process ended; None while it runs."""
        return self._nodes[node_id].process.exit_code

    async def start_all(self, timeout_s: float = START_S_MAX) -> None:
        """Start every node and wait until all are ready; what they wait for is reported.

        Raises:
            StartError: if one ends or is not ready in time; raised for the first one at once.
        """
        for node in self.spec.nodes:
            self._start(node.id)
        failed: list[StartError] = []
        async with trio.open_nursery() as nursery:

            async def wait(node_id: int) -> None:
                try:
                    await self.wait_ready(node_id, timeout_s)
                except StartError as error:
                    failed.append(error)
                    nursery.cancel_scope.cancel()  # the others may wait for this one

            for node in self.spec.nodes:
                nursery.start_soon(wait, node.id)
        if failed:
            raise failed[0]

    async def wait_ready(self, node_id: int, timeout_s: float = START_S_MAX) -> None:
        """Wait until a started node serves; what it waits for is reported.

        Raises:
            StartError: if it ends or is not ready in time.
        """
        running = self._nodes[node_id]
        address = self.spec.node(node_id).http
        reporter = WaitReporter(node_id, self._report, trio.current_time())
        why = ""
        with trio.move_on_after(timeout_s):
            while running.process.exit_code is None:
                why = await health.not_ready_async(address) or await self._not_open(node_id)
                if not why:
                    running.was_ready = True
                    return
                reporter.waits(why, missing(self.spec, self.now()), trio.current_time())
                await trio.sleep(READY_LOOK_EVERY_S)
            raise StartError(
                f"node {node_id} ended with {running.process.ending} before it was ready; "
                f"its log, {self.spec.log_path(node_id)}, ends with:\n{self._tail(node_id)}"
            )
        raise StartError(
            f"node {node_id} is not ready after {timeout_s:.0f} s: "
            f"{why or 'it does not answer'}{missing(self.spec, self.now())}; "
            f"its log, {self.spec.log_path(node_id)}, ends with:\n{self._tail(node_id)}"
        )

    async def _not_open(self, node_id: int) -> str:
        """A port of a secure cluster opens once the registry has its address: at the first start,
        that is after the node serves."""
        open_now = not self.spec.secure or await health.accepts(self.spec.node(node_id).kafka)
        return "" if open_now else "its port for clients is not open yet"

    async def kill(self, node_id: int) -> None:
        node = self._node(node_id, NodeState.RUNNING, NodeState.PAUSED)
        node.state = NodeState.KILLED
        await chaos.kill(node.process)
        self._save_state()

    async def pause(self, node_id: int) -> None:
        node = self._node(node_id, NodeState.RUNNING)
        await chaos.pause(node.process)
        node.state = NodeState.PAUSED
        self._save_state()

    async def resume(self, node_id: int) -> None:
        node = self._node(node_id, NodeState.PAUSED)
        await chaos.resume(node.process)
        node.state = NodeState.RUNNING
        self._save_state()

    def start(self, node_id: int) -> None:
        """Start a node that is not running, without waiting until it is ready."""
        self._node(node_id, NodeState.KILLED, NodeState.EXITED)
        self._start(node_id)

    async def restart(self, node_id: int) -> None:
        """Stop it cleanly if it runs, start it, and wait until it is ready."""
        await self.begin(node_id)
        await self.wait_ready(node_id)

    async def begin(self, node_id: int) -> None:
        """The same without the wait: the caller checks by itself (cluster.waiting)."""
        node = self._node(node_id, *NodeState)
        node.state = NodeState.KILLED if node.process.exit_code is None else node.state
        await self._end([node])
        self._start(node_id)
        self._nursery.start_soon(self._note_ready, node_id, self._nodes[node_id])

    async def _note_ready(self, node_id: int, node: _Node) -> None:
        """Note that it was ready once, so that its end is reported."""
        address = self.spec.node(node_id).http
        while node.process.exit_code is None and not node.was_ready:
            node.was_ready = await health.is_ready_async(address)
            await trio.sleep(LOOK_EVERY_S)

    async def add(self, node_id: int) -> None:
        """Start one more node; it waits until the cluster knows it (`evenkeel node add`)."""
        try:
            spec = grown(self.spec, node_id)
            save(spec, self._overrides, self._env)
        except (SpecError, ConfigError) as error:
            raise control.Refused(str(error)) from error
        self.spec = spec
        self._start(node_id)

    async def forget(self, node_id: int) -> None:
        """A node that the cluster has removed ends by itself; it is no longer ours."""
        node = self._node(node_id, *NodeState)
        node.state = NodeState.KILLED if node.process.exit_code is None else node.state
        with trio.move_on_after(STOP_S_MAX):
            await node.process.wait()
        await self._end([node])
        del self._nodes[node_id]
        self.spec = shrunk(self.spec, node_id)
        save(self.spec, self._overrides, self._env)
        self._save_state()

    async def replace(self, node_id: int) -> None:
        """Restart a node with an empty directory; the old one is kept beside it."""
        node = self._node(node_id, *NodeState)
        node.state = NodeState.KILLED if node.process.exit_code is None else node.state
        await self._end([node])
        directory = self.spec.data_dir / f"node-{node_id}"
        if directory.exists():
            directory.rename(_unused(self.spec.data_dir, f"node-{node_id}.replaced"))
        self._start(node_id)

    async def stop(self) -> None:
        """SIGTERM to all; SIGKILL to those that do not end in time, or at once when in a hurry."""
        self._stopping = True
        await self._end(list(self._nodes.values()))

    def _node(self, node_id: int, *states: NodeState) -> _Node:
        try:
            self.spec.node(node_id)
        except SpecError as error:
            raise control.Refused(str(error)) from error
        node = self._nodes.get(node_id)
        if node is None or node.state not in states:
            now = "not started" if node is None else node.state
            raise control.Refused(f"node {node_id} is {now}")
        return node

    def _start(self, node_id: int) -> None:
        log = self.spec.log_path(node_id)
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_name(log.name + ".1"))
        command = self._command(self.spec, node_id, self._overrides)
        node = _Node(Process.start(command, log=log, env=environment(self._env)))
        self._nodes[node_id] = node
        self._nursery.start_soon(self._watch, node_id, node)
        self._save_state()

    async def _watch(self, node_id: int, node: _Node) -> None:
        """Note how a node ends; if that was not requested, tell the user and leave it to them."""
        await node.process.wait()
        expected = node.state == NodeState.KILLED or self._stopping
        if not expected:
            node.state = NodeState.EXITED
            if node.process.exit_code == 0 and node.was_ready:
                self._report(f"node {node_id} has stopped: it was removed, or stopped on request")
            elif node.was_ready:  # else whoever waits for that tells it, with the end of the log
                self._report(
                    f"node {node_id} ended with {node.process.ending}; see "
                    f"{self.spec.log_path(node_id)}; start it again with: "
                    f"evenkeel restart {node_id}"
                )
        self._save_state()

    async def _end(self, nodes: Sequence[_Node]) -> None:
        for node in nodes:
            node.process.send(SIGTERM)
            node.process.send(SIGCONT)
        with trio.move_on_after(STOP_S_MAX) as patience:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_when_hurried, patience)
                async with trio.open_nursery() as endings:
                    for node in nodes:
                        endings.start_soon(self._wait_for_end, node, patience)
                nursery.cancel_scope.cancel()
        for node in nodes:
            if node.process.send(SIGKILL):
                await node.process.wait()

    async def _wait_for_end(self, node: _Node, patience: trio.CancelScope) -> None:
        await node.process.wait()
        running = sum(one.process.exit_code is None for one in self._nodes.values())
        if 2 * running <= len(self.spec.nodes):
            soon = trio.current_time() + LEFT_ALONE_S_MAX
            patience.deadline = min(patience.deadline, soon)

    async def _stop_when_hurried(self, patience: trio.CancelScope) -> None:
        await self.hurry.wait()
        patience.cancel()

    def now(self) -> State:
        """Write what runs, for other terminals."""
        nodes = {
            node_id: NodeNow(node.state, node.process.pid)
            for node_id, node in sorted(self._nodes.items())
        }
        return State(launcher_pid=os.getpid(), control=self._control, nodes=nodes)

    def _save_state(self) -> None:
        state.write(self.spec.data_dir, self.now())

    def _tail(self, node_id: int) -> str:
        return tail(self.spec.log_path(node_id))

    async def handle(self, what: str, node_id: int) -> str:
        """Carry out a request from the control socket."""
        doings = {
            "kill": (self.kill, "killed (SIGKILL)"),
            "pause": (self.pause, "paused (SIGSTOP)"),
            "resume": (self.resume, "resumed (SIGCONT)"),
            "restart": (self.begin, "restarted and ready"),
            "begin": (self.begin, "started"),
            "add": (self.add, "started"),
            "forget": (self.forget, "stopped; its number will not be used again"),
            "replace": (self.replace, "started with an empty directory"),
        }
        if what not in doings:
            raise control.Refused(f"cannot {what}: expected one of {', '.join(doings)}")
        do, done = doings[what]
        try:
            async with self._one_at_a_time:
                if self._stopping:
                    raise control.Refused("the cluster is stopping")
                await do(node_id)
            if what == "restart":  # not in there: it may wait for a node that has yet to start
                await self.wait_ready(node_id)
        except (chaos.ChaosError, StartError, trio.TooSlowError) as error:
            raise control.Refused(f"node {node_id}: {error}") from error
        message = f"node {node_id} {done}"
        self._report(message)
        return message


def _unused(folder: Path, name: str) -> Path:
    """A name that nothing in the folder has."""
    candidates = (folder / f"{name}-{number}" for number in count(1))
    return next(path for path in candidates if not path.exists())


def _ignore(_line: str) -> None:
    """For callers that look themselves."""


@asynccontextmanager
async def launch(
    spec: ClusterSpec,
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    command: Command = node_command,
    report: Callable[[str], None] = _ignore,
) -> AsyncIterator[Launcher]:
    """A launcher with no node started yet; all are stopped at the end, whatever happens.

    Raises:
        ConfigError: if the nodes would refuse their configuration.
        StateError: if the directory's cluster is already running.
    """
    env = os.environ if env is None else env
    spec.data_dir.mkdir(parents=True, exist_ok=True)
    with state.launcher_lock(spec.data_dir):
        save(spec, overrides, env)
        path = control.socket_path(spec.data_dir)
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            launcher = Launcher(spec, overrides, env, command, report, path, nursery)
            await nursery.start(control.serve, path, launcher.handle)
            try:
                yield launcher
            except Exception as error:  # noqa: BLE001 (raised below, outside the nursery's group)
                failure = error
            finally:
                with trio.CancelScope(shield=True):
                    await launcher.stop()
                nursery.cancel_scope.cancel()
        if path.parent != spec.data_dir:
            path.parent.rmdir()
        if failure is not None:
            raise failure
