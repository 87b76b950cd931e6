"""Nodes with a stand-in for the broker: each group counts the commands of its clients.

Small and quick, so that the protocol's scenarios and the cheaper half of the worlds test `paxos/`,
the intake and the log; `simulator.node.broker_node` tests what the broker does with entries.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from balancer.registry.registry import Registry
from broker.proposals.intake import Done, Outcome, Pending
from paxos.entry import Entry
from paxos.ids import MS, REGISTRY_GROUP, Epoch, GroupId, NodeId, Slot
from paxos.replica import Replica
from paxos.step import Step
from simulator.node.node import SimNode
from simulator.node.state_machine import GAP, RESULT, Machine


class Write(NamedTuple):
    group: GroupId
    seq: int
    anywhere: bool


class Read(NamedTuple):
    group: GroupId
    ident: int
    floor: dict[int, int]


class Written(NamedTuple):
    """`slot` is 0 if the write was not acknowledged."""

    seq: int
    slot: int
    master: NodeId | None


class CommandNode(SimNode):
    machines: dict[GroupId, Machine]

    def begin_life(self) -> None:
        self.machines = {group: self.world.new_machine(group) for group in self.world.members}

    def begin_group(self, group: GroupId) -> None:
        self.machines[group] = self.world.new_machine(group)

    @property
    def registry(self) -> Registry | None:
        first = self.machines.get(REGISTRY_GROUP)
        return None if first is None else first.registry

    def apply(self, group: GroupId, slot: Slot, entry: Entry, *, live: bool) -> list[bytes]:
        return self.machines[group].apply(slot, entry)

    def parts(self, group: GroupId) -> Iterator[bytes]:
        return iter(self.machines[group].parts())

    def restore(self, group: GroupId, base: Slot, parts: Sequence[bytes]) -> None:
        self.machines[group].restore(base, parts)

    def asked(self, client: int, what: object) -> None:
        if type(what) is Write:
            self._on_write(client, what)
        else:
            assert type(what) is Read
            self._on_read(client, what)

    def _on_write(self, client: int, write: Write) -> None:
        now, group = self.now(), self.groups[write.group]
        life = self.life

        def done(outcome: Outcome) -> None:
            if self._alive(life):
                self._answer(client, write, outcome)

        chunks = self.machines[write.group].chunks(client, write.seq)
        pending = Pending(chunks, sum(map(len, chunks)), done)
        group.intake.submit(now, pending, anywhere=write.anywhere)
        self.finish(now, Step(), (group,))

    def _answer(self, client: int, write: Write, outcome: Outcome) -> None:
        world = self.world
        if isinstance(outcome, Done):
            slot = 0 if outcome.result == GAP else RESULT.unpack(outcome.result)[0]
            if slot:
                world.acknowledged.acknowledged(self.me, write.group, client, write.seq, slot)
            answer = Written(write.seq, slot, self.me)
        else:
            answer = Written(write.seq, 0, outcome.master)
        world.trace.note(world.loop.now_ns, "answer", self.me, client, *answer)
        world.network.send(self.me, client, answer)

    def _on_read(self, client: int, read: Read) -> None:
        group = self.groups[read.group]
        epoch, value = group.replica.lease.epoch, self.machines[read.group].value()
        delay = self._chance.choice((0, 0, MS // 2, 10 * MS, 300 * MS))
        self.world.loop.after(delay, self._end_read, self.life, client, read, epoch, value)

    def _end_read(
        self, life: int, client: int, read: Read, epoch: Epoch, value: dict[int, int]
    ) -> None:
        if not self._alive(life):
            return
        loop = self.world.loop
        if loop.now_ns < self.paused_until:
            loop.at(self.paused_until, self._end_read, life, client, read, epoch, value)
        elif self.may_answer_read(self.groups[read.group].replica, epoch):
            self.world.reads.answered(self.me, read.group, read.floor, value)

    def may_answer_read(self, replica: Replica, epoch: Epoch) -> bool:
        return replica.acting(self.now()) and replica.lease.epoch == epoch
