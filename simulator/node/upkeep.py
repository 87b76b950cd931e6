"""What a node of a broker's world does beside serving, if it has the real log and cold segments.

The production machines settle what lies below the log window (broker.lifecycle.tiering) and get
from peers what their logs no longer hold (broker.transfer). Their threads are
`simulator.node.jobs`. Their links are the simulated network, which loses, repeats and reorders
messages as no TCP connection does, and delivers answers to earlier lives.
"""

from typing import Final, Protocol

from balancer.registry.registry import Registry
from broker.lifecycle.retention import segments_of
from broker.lifecycle.tiering import Tiering
from broker.lifecycle.token_bucket import TokenBucket
from broker.requests.context import Broker
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from broker.transfer import codec
from broker.transfer.driver import CatchingUp
from broker.transfer.messages import Message
from paxos.base import Base
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId, Now
from paxos.multigroup import MultiGroup
from paxos.step import FetchState
from simulator.environment.dice import dice
from simulator.node.checkpointing import Checkpoints
from simulator.node.group_state import CatchUp
from simulator.node.host import Host
from simulator.node.jobs import Jobs
from simulator.node.wal_disk import WalDisk
from storage.format import Place
from storage.log.wal import Wal

SEGMENTS_KEPT: Final = 2
"""The log window: the segment that is being written and one that is complete."""
RATES: Final = (0, 200_000)
"""Bytes a second; 0: unlimited."""
BURST_BYTES: Final = 4_000


class BrokerHost(Host, Protocol):
    """A node with the production broker (broker_node.BrokerNode)."""

    broker: Broker
    machines: dict[GroupId, GroupMachine]
    checkpoints: Checkpoints

    def alive(self) -> frozenset[NodeId]: ...

    def master(self, group: GroupId) -> NodeId | None: ...


class Upkeep:
    """That of one life of a node."""

    def __init__(self, node: BrokerHost, disk: WalDisk) -> None:
        self._node, self._disk = node, disk
        chance = dice(node.world.options.seed, "upkeep", node.me, node.life)
        assert disk.cold is not None
        self.cold = disk.cold
        self._alive = node.alive()
        mover = Jobs(node, disk, chance, writes=True)
        saver = Jobs(node, disk, chance, writes=True)
        helper = Jobs(node, disk, chance, writes=False)
        self.tiering = Tiering(
            disk.wal,
            node.machines,
            disk.cold,
            mover,
            TokenBucket(chance.choice(RATES), BURST_BYTES),
            lambda _uid: False,  # when a node drops a deleted topic does not concern the log
            lambda _uid: segments_of({}, node.broker.config),
            self._suspect,
            self,
        )
        self.catching_up = CatchingUp(
            self,
            node.machines,
            disk.checkpoints,
            disk.cold,
            node.checkpoints,
            self.tiering,
            (saver, mover, helper),
            (TokenBucket(0, 0), TokenBucket(chance.choice(RATES), BURST_BYTES)),
            node.broker.registry,
            _scratch,
            self,
        )
        self.catching_up.links = self
        disk.retires_below = self._retires_below

    def tick(self, now: Now) -> None:
        cleared = self.tiering.clear_below
        self.tiering.tick(now.boot_ns, self._window_start())
        if self.tiering.clear_below > cleared:
            self._node.world.statistics["log windows settled"] += 1
            self._node.checkpoints.retire_all()
        alive = self._node.alive()
        for peer in sorted(self._alive - alive):
            self.catching_up.peer_down(peer)
        self._alive = alive
        self.catching_up.tick(now.boot_ns)

    def fetch(self, fetch: FetchState) -> None:
        self.catching_up.want(fetch)

    def received(self, source: NodeId, frame: bytes) -> None:
        self.catching_up.on_message(source, codec.decode(memoryview(frame)))

    def left(self, group: GroupId, machine: GroupMachine) -> None:
        """Drop the group's data with it."""
        self.catching_up.dropped(group)
        for uid in machine.partitions:
            self.tiering.not_fetched(uid)
            self.cold.drop(uid)

    def _window_start(self) -> int:
        kept = self._disk.wal.kept()
        return max(kept.start, kept.stop - SEGMENTS_KEPT)

    def _retires_below(self) -> int:
        return min(self._window_start(), self.tiering.read_from())

    def _suspect(self, place: Place) -> None:
        raise AssertionError(f"nothing damages this world's disks, and {place} is damaged")

    # -- broker.transfer.driver.Links and Node -------------------------------------------------

    def catch_up(self, to: NodeId, message: Message) -> None:
        chunks = codec.encode(message)
        frame = b"".join(chunks)
        self._node.world.trace.mix(frame)
        self._node.world.network.send(self._node.me, to, CatchUp(frame))

    def connected(self, node: NodeId) -> bool:
        return node in self._alive

    @property
    def multi(self) -> MultiGroup:
        return self._node.core

    @property
    def wal(self) -> Wal:
        return self._disk.wal

    @property
    def takes_part(self) -> bool:
        return True

    def boot_ns(self) -> int:
        return self._node.now().boot_ns

    def now(self) -> Now:
        return self._node.now()

    def master(self, group: GroupId) -> NodeId | None:
        return self._node.master(group)

    def end_round(self) -> None:
        """An event on a simulated node is a round of its own, and over when this is called."""

    def install(self, now: Now, group: GroupId, base: Base) -> None:
        self._node.checkpoints.go_on_from(group, base)
        self._node.broker.delayed_fetches.appended(self._node.machines[group].take_grown())

    # -- broker.ports.Journal -----------------------------------------------------------------

    def _note(self, event: str, **fields: object) -> None:
        world = self._node.world
        world.statistics[event] += 1
        world.trace.note(world.loop.now_ns, event, self._node.me, *fields.values())

    info = warning = error = _note


def _scratch(group: GroupId) -> GroupMachine:
    registry = Registry() if group == REGISTRY_GROUP else None
    return GroupMachine(group, tail=Tail(0), statistics=BrokerStatistics(), registry=registry)
