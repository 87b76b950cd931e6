"""What a whole node gets of a simulated machine (runtime.machine.Machine), and how it connects."""

import errno
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import attrs

from paxos.clocks.clock import SystemClock
from paxos.ids import MS
from runtime.config.config import Config
from runtime.config.fields import Address
from runtime.network.dataplane import READ, Plane
from runtime.network.listener import OnAccept
from runtime.network.stream import Stream
from runtime.system.journal import Journal
from simulator.environment.clock import Clock
from simulator.environment.loop import Loop
from simulator.whole.disk import SimDisk
from simulator.whole.poller import SimPoller, SimSignal
from simulator.whole.process import Process, Threads
from simulator.whole.streams import Links, Pipe, SimStream

CLOCK_NS: Final = 150
"""What it costs to read a clock."""
DIAL_NS: Final = 2_000 * MS
BACKLOG: Final = 128
ACCEPTS_PER_ROUND_MAX: Final = 64


class Placed(Protocol):
    """Who has an address on the simulated network, and may listen there."""

    address: int
    listening: dict[int, "SimListening"]

    @property
    def powered(self) -> bool: ...


@attrs.define(eq=False)
class Lan:
    """Who is where. Hosts are named `n<address>`."""

    loop: Loop
    links: Links
    hosts: dict[int, Placed] = attrs.Factory(dict)

    def connect(
        self,
        source: int,
        target: int,
        port: int,
        made: Callable[[Pipe, Pipe], Stream],
        done: Callable[[Stream | None], None],
        now_ns: int,
    ) -> None:
        """`made` builds the caller's side of the pipes (in, out); `done` is an event of its own."""
        there = self.links.delay_ns(source, target)
        host = self.hosts.get(target)
        if there is None or host is None or not host.powered:
            self.loop.at(now_ns + DIAL_NS, done, None)
            return

        def arrives() -> None:
            back = self.links.delay_ns(target, source)
            if back is None:
                self.loop.after(DIAL_NS, done, None)
                return
            listening = host.listening.get(port)
            if listening is None or not listening.accepting or listening.full:
                self.loop.after(back, done, None)
                return
            to, fro = (
                Pipe(self.loop, self.links, source, target),
                Pipe(self.loop, self.links, target, source),
            )
            listening.came(to, fro, source)
            self.loop.after(back, _greeted, to, fro)

        def _greeted(to: Pipe, fro: Pipe) -> None:
            done(made(fro, to))

        self.loop.at(now_ns + there, arrives)


class SimListening:
    """A port (runtime.network.listener.Listening)."""

    def __init__(
        self,
        machine: "SimMachine",
        plane: Plane,
        port: int,
        on_accept: OnAccept,
        listening: dict[int, "SimListening"],
    ) -> None:
        self._machine, self._plane, self._port, self._on_accept = machine, plane, port, on_accept
        self._listening = listening
        self._waiting: deque[tuple[SimStream, str]] = deque()
        self._fd = machine.sockets.open(self)
        self.accepting = False
        listening[port] = self

    @property
    def full(self) -> bool:
        return len(self._waiting) >= BACKLOG

    def accept_again(self) -> None:
        self._plane.register(self._fd, READ, self._on_ready)
        self.accepting = True

    def refuse_all(self) -> None:
        self._plane.unregister(self._fd)
        self.accepting = False
        while self._waiting:
            self._waiting.popleft()[0].vanish()

    def came(self, incoming: Pipe, outgoing: Pipe, source: int) -> None:
        self._waiting.append((self._machine.stream(incoming, outgoing), f"n{source}"))
        self._machine.sockets.touched(self._fd)

    def ready(self) -> int:
        return READ if self._waiting else 0

    def _on_ready(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_ROUND_MAX):
            if not self._waiting:
                return
            stream, host = self._waiting.popleft()
            self._on_accept(stream, host)

    def close(self) -> None:
        if self.accepting:
            self.refuse_all()
        self._listening.pop(self._port, None)


class ProcessClock:
    """The machine's clocks, as its process sees them (paxos.clocks.clock.SystemClock)."""

    def __init__(self, clock: Clock, process: Process) -> None:
        self._clock, self._process = clock, process

    def wall_ns(self) -> int:
        return self._clock.read(self._process.now_ns()).wall_ns

    def boot_ns(self) -> int:
        return self._clock.boot_ns(self._process.later_ns(CLOCK_NS))


class SimMachine:
    """Of one life of its process."""

    def __init__(
        self,
        address: int,
        lan: Lan,
        listening: dict[int, SimListening],
        process: Process,
        disk: SimDisk,
        clock: Clock,
        new_id: Callable[[], bytes],
    ) -> None:
        self.address, self._lan, self._listening = address, lan, listening
        self.process, self._disk, self._new_id = process, disk, new_id
        self.clock: SystemClock = ProcessClock(clock, process)
        self.sockets = SimPoller(process)
        self.streams: dict[SimStream, None] = {}
        disk.begin_life(process, Threads(process, self.clock.boot_ns))
        disk.signals = self._signal
        self._signals: dict[int, SimSignal] = {}
        self.dialled: deque[tuple[Callable[[Stream | None], None], Stream | None]] = deque()
        """What the main thread has to be told of connections."""

    def disk(self, config: Config) -> SimDisk:
        return self._disk

    def poller(self) -> SimPoller:
        return self.sockets

    def signal(self) -> SimSignal:
        signal = SimSignal(self.sockets)
        self._signals[signal.fd] = signal
        return signal

    def _signal(self, fd: int) -> None:
        if self.process.alive:
            self._signals[fd].set()

    def listen(
        self, plane: Plane, address: Address, on_accept: OnAccept, journal: Journal
    ) -> SimListening:
        if address.port in self._listening:
            raise OSError(errno.EADDRINUSE, "in use")
        listening = SimListening(self, plane, address.port, on_accept, self._listening)
        listening.accept_again()
        return listening

    def new_id(self) -> bytes:
        return self._new_id()

    # -- connections --------------------------------------------------------------------------

    def stream(self, incoming: Pipe, outgoing: Pipe) -> SimStream:
        fd = self.sockets.open()
        watch = _Held(self)
        stream = watch.stream = SimStream(
            fd, watch, incoming, outgoing, self.process.now_ns, self.process.charge
        )
        self.sockets.is_(fd, stream)
        self.streams[stream] = None
        return stream

    def dial(self, address: Address, done: Callable[[Stream | None], None]) -> None:
        """runtime.network.stream.Dialer."""

        def answered(stream: Stream | None) -> None:
            if self.process.alive:
                self.dialled.append((done, stream))
                self.sockets.woken()
            elif stream is not None:
                stream.close()

        target = int(address.host.removeprefix("n"))
        now_ns = self.process.now_ns()
        self._lan.connect(self.address, target, address.port, self.stream, answered, now_ns)

    def end(self, *, silently: bool) -> None:
        """The process is no more: the kernel closes what it had open, unless it is gone as well."""
        for stream in [*self.streams]:
            if silently:
                stream.lose_power()
            else:
                stream.close()
        self._listening.clear()


class _Held:
    """Between a stream and the poller of its process."""

    stream: SimStream

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine

    def touched(self, fd: int) -> None:
        self._machine.sockets.touched(fd)

    def gone(self, fd: int) -> None:
        self._machine.sockets.forget(fd)
        self._machine.streams.pop(self.stream, None)
