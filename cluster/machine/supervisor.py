"""Runs the node processes of one machine: starts them, starts one again that has crashed, ends all.

It is their parent, and stays small: if it is killed itself, the kernel kills the nodes (child.py),
so none of them is left without one. A node that ends with an error which a restart does not mend
(a bad configuration, a refused directory, a failed disk) stays down, and the others go on. Another
terminal asks it over a unix socket in the machine's directory (`cluster.control`).

An upgrade ends the nodes and then replaces the supervisor by the program that is installed by then
(exec(2)): it keeps its process id, so a service manager sees no end.
"""

import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM
from typing import Any, Final, TypeAlias

import attrs
import trio

from cluster import control
from cluster.machine.plan import MachineNode, MachinePlan
from cluster.process import Process
from cluster.programs import environment, program
from runtime.config.fields import Address, show
from runtime.system.cores import cores_allowed

GRACE_S: Final = 25.0
"""How long nodes may take to give their masters away and close their logs; a unit that `evenkeel
generate systemd` writes allows a little more."""
FIRST_DELAY_S: Final = 1.0
MOST_DELAY_S: Final = 60.0
STEADY_S: Final = 60.0
"""Who has run this long has not failed at once: the delays begin anew."""
NEEDS_A_PERSON: Final = (2, 3, os.EX_IOERR)
"""Exit codes of a node (node.py) after which another start would end in the same way."""
LOCK: Final = "machine.lock"

Command: TypeAlias = Callable[[MachinePlan, MachineNode, Sequence[str]], list[str]]
"""(plan, node, overrides) -> what to run; a parameter, so that tests can run something small."""


class MachineError(RuntimeError):
    """The machine cannot be run, or not asked; the message says why."""


class ChildState(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    """It has crashed, and is started again after a delay."""
    ENDED = "ended"
    """It will not be started again by itself."""


def node_command(plan: MachinePlan, node: MachineNode, overrides: Sequence[str]) -> list[str]:
    sets = [word for override in overrides for word in ("--set", override)]
    parent = ["--parent-pid", str(os.getpid())]
    return program("node", "--config", str(plan.config_path(node)), *sets, *parent)


@attrs.define
class _Child:
    node: MachineNode
    core: int | None = None
    process: Process | None = None
    state: ChildState = ChildState.WAITING
    starts: int = 0
    ending: str = ""
    """How it ended the last time, in words."""

    def send(self, *signals: int) -> None:
        for number in signals:
            if self.process is not None:
                self.process.send(number)  # type: ignore[arg-type] # signal.Signals are ints


class Supervisor:
    def __init__(
        self,
        plan: MachinePlan,
        nodes: Sequence[MachineNode],
        *,
        env: Mapping[str, str],
        say: Callable[[str], None],
        overrides: Sequence[str] = (),
        command: Command = node_command,
        grace_s: float = GRACE_S,
        first_delay_s: float = FIRST_DELAY_S,
    ) -> None:
        self._plan, self._env, self._say = plan, env, say
        self._overrides, self._command = overrides, command
        self._grace_s, self._first_delay_s = grace_s, first_delay_s
        cores = cores_allowed() if plan.pin else ()
        self._children = [
            _Child(node, cores[at % len(cores)] if cores else None) for at, node in enumerate(nodes)
        ]
        self._stopping, self._hurry = trio.Event(), trio.Event()
        self.again = False
        """Whether to start anew, with the program that is installed by now."""

    async def run(self) -> int:
        """Until a signal or a request; returns the exit code. A second signal kills."""
        with trio.open_signal_receiver(SIGTERM, SIGINT, SIGHUP) as received:
            async with trio.open_nursery() as nursery:
                await nursery.start(control.serve, socket_path(self._plan.data_dir), self._handle)
                nursery.start_soon(self._obey, received)
                nursery.start_soon(self._end_all)
                async with trio.open_nursery() as children:
                    for child in self._children:
                        children.start_soon(self._keep, child)
                nursery.cancel_scope.cancel()
        return self._exit_code()

    def _exit_code(self) -> int:
        """0 if it was asked to end; else what a node ended with that nobody could start again."""
        if self._stopping.is_set():
            return 0
        codes = [child.process.exit_code or 0 for child in self._children if child.process]
        return next((code for code in codes if code), 0)

    # ---- one node --------------------------------------------------------------------------------

    async def _keep(self, child: _Child) -> None:
        """Start it, and start it again when it crashes."""
        delay_s, name = self._first_delay_s, f"node {child.node.id}"
        while not self._stopping.is_set():
            began = trio.current_time()
            code = await self._run_once(child)
            if self._stopping.is_set():
                return
            if code == 0:
                self._say(f"{name} has stopped: it was removed, or stopped on request")
                return
            if code in NEEDS_A_PERSON:
                self._say(f"{name} ended with {child.ending}: its log above says what to mend")
                return
            if trio.current_time() - began >= STEADY_S:
                delay_s = self._first_delay_s
            child.state = ChildState.WAITING
            self._say(f"{name} ended with {child.ending}; it starts again in {delay_s:g} s")
            with trio.move_on_after(delay_s):
                await self._stopping.wait()
            delay_s = min(2 * delay_s, MOST_DELAY_S)
        child.state = ChildState.ENDED

    async def _run_once(self, child: _Child) -> int:
        """Start it, and wait for its end; returns the exit code."""
        command = self._command(self._plan, child.node, self._overrides)
        child.starts += 1
        try:
            child.process = Process.start(command, log=None, env=environment(self._env))
        except OSError as error:  # no memory, no processes: the others must not end for it
            child.ending = f"no process: {error.strerror}"
            return os.EX_OSERR
        child.state = ChildState.RUNNING
        if child.core is not None:
            with suppress(OSError):
                os.sched_setaffinity(child.process.pid, {child.core})
        code = await child.process.wait()
        child.state, child.ending = ChildState.ENDED, child.process.ending
        return code

    # ---- all nodes -------------------------------------------------------------------------------

    async def _obey(self, received: Any) -> None:  # noqa: ANN401 (trio has no public name for it)
        async for _ in received:
            if self._stopping.is_set():
                self._hurry.set()
            self._stopping.set()

    async def _end_all(self) -> None:
        """SIGTERM to all at once: their masters go to other machines; SIGKILL after the grace."""
        await self._stopping.wait()
        self._say(f"stopping {len(self._children)} nodes of machine {self._plan.name} ...")
        for child in self._children:
            child.send(SIGTERM, SIGCONT)
        with trio.move_on_after(self._grace_s):
            await self._hurry.wait()
        for child in self._children:
            child.send(SIGKILL)

    async def _handle(self, what: str, _node: int) -> str:
        """Carry out a request from the control socket."""
        if what == "status":
            return json.dumps(self.status())
        if what not in ("stop", "again"):
            raise control.Refused(f"cannot {what}: expected status, stop or again")
        if self._stopping.is_set():
            raise control.Refused(f"machine {self._plan.name} is stopping already")
        self.again = what == "again"
        self._stopping.set()
        return f"machine {self._plan.name} is {'starting anew' if self.again else 'stopping'}"

    def status(self) -> dict[str, Any]:
        return {
            "machine": self._plan.name,
            "pid": os.getpid(),
            "stopping": self._stopping.is_set(),
            "nodes": [
                {
                    "id": child.node.id,
                    "state": child.state.value,
                    "pid": None if child.process is None else child.process.pid,
                    "core": child.core,
                    "starts": child.starts,
                    "ending": child.ending,
                }
                for child in self._children
            ],
        }


# ---- before and around it ------------------------------------------------------------------------


def socket_path(data_dir: Path) -> Path:
    """Always the same, so that another terminal finds it.

    Raises:
        MachineError: the directory's path is too long for a socket.
    """
    path = data_dir / "machine.sock"
    if len(os.fsencode(path)) > control.SOCKET_PATH_BYTES_MAX:
        most = control.SOCKET_PATH_BYTES_MAX
        raise MachineError(f"machine.data_dir = {show(data_dir)}: {path} is longer than {most}")
    return path


@contextmanager
def only_one(plan: MachinePlan) -> Iterator[None]:
    """Be the one supervisor of this machine's directory.

    Raises:
        MachineError: if another one is.
    """
    plan.data_dir.mkdir(parents=True, exist_ok=True)
    with (plan.data_dir / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MachineError(
                f"machine {plan.name} runs already in {plan.data_dir}; look at it with: evenkeel "
                f"machine status --config {plan.file}"
            ) from error
        yield


def refuse_taken_ports(nodes: Sequence[MachineNode]) -> None:
    """Raises:
    MachineError: with every address on which a node could not listen.
    """
    problems = [
        f"node {node.id}: {which} = {show(address)}: {why}"
        for node in nodes
        for which, address in node.ports.items()
        if (why := _why_not(address))
    ]
    if problems:
        raise MachineError("\n".join(problems))


def _why_not(address: Address) -> str:
    """Why nothing can listen there; "" if something can."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        return "the name is unknown on this machine"
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return (
                    "another process listens there (ss -ltnp shows which); each node of the "
                    "machine takes the next port"
                )
            if error.errno == errno.EADDRNOTAVAIL:
                return "it is no address of this machine"
            return (error.strerror or str(error)).lower()
    return ""


def start_anew() -> None:
    """Become the program that is installed now, with the arguments that this one was given."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (no shell wanted)
