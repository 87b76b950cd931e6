"""One simulated machine: what it keeps over its lives, and the whole node that runs on it."""

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import attrs

from broker.ports import Reply
from broker.state_machine.machine import GroupMachine
from coordinator.model import GroupNotice
from node import Node, begin
from paxos.entry import Entry
from paxos.ids import MS, GroupId, NodeId, Slot
from paxos.messages import Message
from runtime.balancing.draining import DRAIN_S, STEP_S, Draining
from runtime.config.config import Config
from runtime.membership.handshake import FORMAT, Hello
from runtime.membership.lease_terms import LeaseTerms
from runtime.membership.peer_versions import PeerVersions
from runtime.membership.versions import UNTOLD
from runtime.system.journal import Journal
from simulator.environment.clock import Clock
from simulator.environment.loop import Loop
from simulator.whole.disk import SimDisk
from simulator.whole.machine import Lan, SimListening, SimMachine
from simulator.whole.process import NS_PER_S, Process, SimThread
from storage.errors import DirectoryRefused, StorageError

TICK_NS: Final = 20 * MS
NEVER: Final = 1 << 62
_FORMAT: Final = struct.Struct(">H")
"""A greeting begins with the format of links."""
KAFKA_PORT, PEER_PORT, HTTP_PORT = 9092, 7092, 8092


class Watching(Protocol):
    """The world, as far as its hosts tell it what happens."""

    loop: Loop
    lan: Lan

    def config(self, node: NodeId) -> Config: ...

    def journal(self, node: NodeId) -> Journal: ...

    def is_new(self, group: GroupId, slot: Slot) -> bool:
        """Whether nobody has applied it yet."""
        ...

    def executed(
        self, node: NodeId, group: GroupId, slot: Slot, entry: Entry, results: list[bytes]
    ) -> None: ...

    def group_told(self, node: NodeId, group: GroupId, notice: GroupNotice) -> None:
        """A coordinator says something of its groups."""
        ...

    def taught(self, to: NodeId, message: object) -> None:
        """A node sends a peer what it has missed."""
        ...

    def reached(self, frame: memoryview) -> None:
        """A client's request has come to a node."""
        ...

    def stopped(self, host: "Host", masters_left: int) -> None:
        """It was told to stop, and has."""
        ...

    def ended(self, host: "Host", why: BaseException | None) -> None: ...

    def waited_on_loop(self, node: NodeId, operation: str, name: str) -> None: ...


class Host:
    def __init__(self, world: Watching, me: NodeId, disk: SimDisk, clock: Clock) -> None:
        self.world, self.me, self.address = world, me, int(me)
        self.disk, self.clock = disk, clock
        self.listening: dict[int, SimListening] = {}
        self.process: Process | None = None
        self.machine: SimMachine | None = None
        self.node: Node | None = None
        """Built and serving."""
        self.life = 0
        self.served = False
        """Whether this life, or the one that has just ended, came so far as to serve."""
        self.powered = True
        self.retired = False
        """It was removed from the cluster: it is never booted again."""
        self.version = 0
        """Of the program that it is booted with: links to those with another one are refused."""
        self.older = False
        """Its program is one of before there were cluster versions."""
        self._stopping = False
        self.spoil: Callable[[NodeId, Message], Message] = lambda _to, message: message
        """What it tells a peer instead."""
        self.may_be_refused = False
        """Somebody has put an old directory in the place of its own."""
        world.lan.hosts[self.address] = self

    def ahead_of(self, node: NodeId) -> int:
        """By how many versions of the program."""
        other = self.world.lan.hosts.get(int(node))
        return self.version - other.version if isinstance(other, Host) else 0

    @property
    def up(self) -> bool:
        return self.process is not None

    @property
    def stopping(self) -> bool:
        return self.up and self._stopping

    def runs(self) -> bool:
        process = self.process
        return process is not None and process.runs()

    # -- its lives ----------------------------------------------------------------------------

    def boot(self) -> None:
        assert self.process is None
        self.powered = True
        self.life += 1
        self.served = self._stopping = False
        process = Process(self.world.loop, f"n{self.me}", self._died)
        self.process = process
        chance = random.Random(f"{self.me} {self.life}")
        self.machine = SimMachine(
            self.address,
            self.world.lan,
            self.listening,
            process,
            self.disk,
            self.clock,
            partial(chance.randbytes, 16),
        )
        self.disk.on_loop = self._on_loop
        process.spawn("main", self._main).start()

    def do(self, order: Callable[[], None]) -> None:
        """On the loop of the node that runs."""
        assert self.machine is not None
        self.machine.dialled.append((lambda _: order(), None))
        self.machine.sockets.woken()

    def stop(self) -> None:
        """SIGTERM: it gives its masters away, closes what it has, and ends; `world.stopped` is told
        when it has."""
        if self.node is None or self.machine is None:
            self.kill()  # nobody waits for signals yet
            return
        self._stopping = True
        self.machine.sockets.woken()

    def kill(self) -> None:
        """SIGKILL: what the kernel has been given is safe, and connections are closed."""
        self._end(silently=False)
        self.disk.kill()

    def cut_power(self, chance: random.Random) -> None:
        self._end(silently=True)
        self.powered = False
        self.disk.cut_power(chance)
        self.clock.reboot(self.world.loop.now_ns)

    def _end(self, *, silently: bool) -> None:
        process, machine = self.process, self.machine
        if process is None or machine is None:
            return
        self.process = self.machine = self.node = None
        process.kill()
        machine.end(silently=silently)

    def _died(self, why: BaseException | None) -> None:
        if self.process is not None:  # by itself
            machine, self.process, self.machine, self.node = self.machine, None, None, None
            assert machine is not None
            machine.end(silently=False)
            self.disk.kill()
            self.world.ended(self, why)

    # -- the node -----------------------------------------------------------------------------

    def _main(self) -> None:
        process, machine = self.process, self.machine
        assert process is not None
        assert machine is not None
        thread = process.current()
        assert thread is not None
        node = _WatchedNode(self, machine)
        begin(node)
        node.peers.dialer = machine
        machine.sockets.woken = thread.wake
        node.shell.on_removed = self._removed
        self.node, self.served = node, True
        if node.shell.removed:
            self._removed()
        try:
            left = self._serve(node, process, machine, thread)
        except DirectoryRefused:
            self._close(node)
            raise
        self._close(node)
        process.loop.at(process.now_ns(), self._exited, self.life, left)

    def _close(self, node: Node) -> None:
        self.node = None  # from here on it may wait for its disk
        node.close()

    def _serve(self, node: Node, process: Process, machine: SimMachine, thread: SimThread) -> int:
        """Until it has been told to stop and has drained; how many masters are left."""
        ticks_ns = process.now_ns() + TICK_NS
        waits = False
        leaving: Draining | None = None
        step_ns = until_ns = NEVER
        while True:
            if not waits and not machine.sockets.any_ready() and not machine.dialled:
                thread.wait(min(ticks_ns, step_ns))
            else:
                thread.wait(process.now_ns())  # others have their turn, and what it cost is paid
            while machine.dialled:
                done, stream = machine.dialled.popleft()
                done(stream)
            if process.now_ns() >= ticks_ns:
                node.plane.run_timers()
                node.shell.tick()
                ticks_ns = process.now_ns() + TICK_NS
            waits = node.plane.turn(node.shell.end_of_round, waits=waits, linger_s=0)
            now_ns = process.now_ns()
            if self._stopping and leaving is None:
                leaving, step_ns = node.leave(), now_ns
                until_ns = now_ns + int(DRAIN_S * NS_PER_S)
            if leaving is not None and now_ns >= step_ns:
                if now_ns >= until_ns or not leaving.step():
                    return leaving.end()
                step_ns = now_ns + int(STEP_S * NS_PER_S)

    def _removed(self) -> None:
        self.retired = self._stopping = True

    def _exited(self, life: int, left: int) -> None:
        if life == self.life and self.up:
            self._end(silently=False)
            self.disk.kill()
            self.world.stopped(self, left)

    def _on_loop(self, operation: str, name: str) -> None:
        if self.node is not None:
            self.world.waited_on_loop(self.me, operation, name)


@attrs.frozen(kw_only=True)
class _Greeting(Hello):
    """Of a node that may run another version than the one it calls: told by a format that is not
    that one's, whichever of the two is the older one."""

    ahead_of: Callable[[NodeId], int]
    """By how many versions this node is ahead of another one."""

    def encode(self) -> bytes:
        told = super().encode()
        return _FORMAT.pack(FORMAT + self.ahead_of(self.to)) + told[_FORMAT.size :]


class OlderVersions(PeerVersions):
    """Of a program of before: it tells nothing, and can read the first cluster version alone."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = UNTOLD

    def terms(self, lease: LeaseTerms) -> bytes:
        return lease.encode()


class _WatchedNode(Node):
    """Tells the world what it applies, from its boot on."""

    def __init__(self, host: Host, machine: SimMachine) -> None:
        self._host = host
        world = host.world
        super().__init__(world.config(host.me), world.journal(host.me), machine)
        if host.older:
            self.peers.versions = OlderVersions()
            self.shell.raising._peers = self.peers.versions

    def _make_machine(self, group: GroupId) -> GroupMachine:
        machine, host = super()._make_machine(group), self._host
        apply: Callable[..., list[bytes]] = machine.apply

        def applied(
            slot: Slot,
            entry: Entry,
            position: int = 0,
            *,
            keep_in_tail: bool = True,
            answer: bool = True,
        ) -> list[bytes]:
            wanted = answer or host.world.is_new(group, slot)  # the checkers want to see it once
            results = apply(slot, entry, position, keep_in_tail=keep_in_tail, answer=wanted)
            host.world.executed(host.me, group, slot, entry, results if wanted else [])
            return results

        machine.apply = applied  # type: ignore[method-assign]
        return machine

    def group_notice(self, group: GroupId, notice: GroupNotice) -> None:
        super().group_notice(group, notice)
        self._host.world.group_told(self._host.me, group, notice)

    def _wire(self) -> None:
        super()._wire()
        fields = attrs.asdict(self.peers._hello, recurse=False)
        self.peers._hello = _Greeting(**fields, ahead_of=self._host.ahead_of)
        send, send_bulk = self.peers.send, self.peers.send_bulk
        self.peers.send = lambda to, message: send(  # type: ignore[method-assign]
            to, self._host.spoil(to, message)
        )

        def teach(to: NodeId, message: Message) -> None:
            self._host.world.taught(to, message)
            send_bulk(to, message)

        self.peers.send_bulk = teach  # type: ignore[method-assign]

    def _wire_clients(self) -> None:
        super()._wire_clients()
        clients, reached = self.clients, self._host.world.reached
        serve = clients.serve

        def served(frame: memoryview, owned: bool, client_host: str, reply: Reply) -> None:
            reached(frame)
            serve(frame, owned, client_host, reply)

        clients.serve = served


def is_of_disk(why: BaseException | None) -> bool:
    """Whether a node may end by this: its disk has failed."""
    return isinstance(why, StorageError)
