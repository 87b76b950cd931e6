"""This node's reports for the console, on this node or on another.

The *state* includes the groups that this node acts for. The *data* covers everything that it is
master of; it is collected in small steps, so that nothing else waits for it.
"""

from collections.abc import Callable, Iterator
from typing import Final

import attrs
import trio
import trio.lowlevel

from broker.requests.context import Broker
from broker.state_machine.machine import GroupMachine
from coordinator.model import (
    ConsumerGroupId,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    NameGroups,
    NameGroupsResponse,
    Request,
    Response,
)
from coordinator.replicated.stored import StoredGroup
from paxos.ids import MS, GroupId
from runtime.console.messages import (
    CLIENTS_MAX,
    CONSUMERS_BYTES_MAX,
    CONSUMERS_MAX,
    NUMBER_MAX,
    OFFSETS_MAX,
    PARTITIONS_MAX,
    TEXT_CHARS_MAX,
    TOPICS_MAX,
    Acting,
    Committed,
    Consumers,
    Data,
    Ends,
    Held,
    Sample,
    State,
    encoded_size,
)
from runtime.console.recent_traffic import SECOND_NS, RecentTraffic
from runtime.engine.engine import Engine
from runtime.metrics.status import rss_bytes
from wire.software import VERSION

PIECE: Final = 500
"""Partitions or offsets per step, before other tasks run: well below 1 ms."""


@attrs.define(eq=False)
class _Walk:
    """How much has been collected so far; limits a report, and pauses after each PIECE."""

    partitions: int = 0
    offsets: int = 0
    consumers: int = 0
    consumers_bytes: int = 0
    since_pause: int = 0
    cut: bool = False

    async def pause(self, looked_at: int) -> None:
        self.since_pause += looked_at
        if self.since_pause >= PIECE:
            self.since_pause = 0
            await trio.lowlevel.checkpoint()


class LocalReport:
    """`not_ready` as in GET /readyz; `connections` returns the number of clients."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        past: RecentTraffic,
        durability: str,
        not_ready: Callable[[], str],
        connections: Callable[[], int],
    ) -> None:
        self._engine, self._broker, self._recent_traffic = engine, broker, past
        self._durability, self._not_ready, self._connections = durability, not_ready, connections
        self._started_boot_ns = engine.now().boot_ns

    # -- state --------------------------------------------------------------------------------

    def state(self, since: int) -> State:
        engine = self._engine
        now = engine.now()
        room = engine.writer.room
        return State(
            incarnation=engine.multi.incarnation,
            second=now.boot_ns // SECOND_NS,
            not_ready=self._not_ready()[:TEXT_CHARS_MAX],
            version=VERSION,
            durability=self._durability,
            uptime_s=(now.boot_ns - self._started_boot_ns) // SECOND_NS,
            rss_bytes=rss_bytes(),
            disk_free_bytes=-1 if room is None else room.free_bytes,
            disk_low=int(engine.disk_pressure.low),
            connections=self._connections(),
            acting=tuple(self._acting()),
            samples=self.samples(since),
        )

    def samples(self, since: int) -> tuple[Sample, ...]:
        return self._recent_traffic.since(since)

    def _acting(self) -> Iterator[Acting]:
        now = self._engine.now()
        for replica in self._engine.multi.replicas.values():
            if replica.acting(now):
                one = replica.statistics(now)
                others = one.peers_applied.items()
                slots = (slot for node, slot in others if node in one.members)
                behind = max(0, one.applied - min(slots, default=one.applied))
                yield Acting(one.group, one.lease_left_ns // MS, one.epoch, behind)

    # -- data ---------------------------------------------------------------------------------

    async def data(self) -> Data:
        walk = _Walk()
        ends = await self._ends(walk)
        consumers: list[Consumers] = []
        for group in self._broker.consumer_groups.coordinated():
            machine = self._broker.machines.get(group)
            if machine is not None:
                await self._walk_consumers(group, machine, walk, consumers)
        return Data(ends=ends, held=self._held(), consumers=tuple(consumers), cut=int(walk.cut))

    async def _walk_consumers(
        self, group: GroupId, machine: GroupMachine, walk: _Walk, consumers: list[Consumers]
    ) -> None:
        names = self._names(group)
        for at in range(0, len(names), PIECE):
            if walk.consumers >= CONSUMERS_MAX:
                walk.cut = True
                return
            listed = self._listed(group, names[at : at + PIECE])
            await walk.pause(len(listed))
            for one in listed:
                told = _consumers(group, one, machine, walk)
                if told is not None:
                    consumers.append(told)
                    await walk.pause(sum(len(some.indexes) for some in told.committed) + 1)

    async def _ends(self, walk: _Walk) -> tuple[Ends, ...]:
        registry, topics = self._broker.registry, dict[str, Ends]()
        for group in self._broker.consumer_groups.coordinated():
            machine = self._broker.machines.get(group)
            if machine is None:
                continue  # this node has dropped the group since
            states = machine.partitions
            for uid, place in list(registry.partitions_of_group(group).items()):
                state = states.get(uid)
                if walk.partitions >= PARTITIONS_MAX:
                    walk.cut = True
                    break
                ends = topics.get(place.topic)
                if ends is None:
                    ends = topics[place.topic] = Ends(place.topic, [], [], [])
                ends.indexes.append(place.index)
                ends.starts.append(0 if state is None else state.log_start)
                ends.ends.append(0 if state is None else state.next_offset)
                walk.partitions += 1
                await walk.pause(1)
        return tuple(topics.values())

    def _held(self) -> tuple[Held, ...]:
        """Sizes of the last pass over all partitions (broker.lifecycle.retention)."""
        retention = self._broker.retention
        sizes = sorted(retention.sizes.items(), key=lambda one: one[1].bytes, reverse=True)
        held = []
        for topic, size in sizes[:TOPICS_MAX]:
            rate = retention.rates.appended(topic)
            held.append(Held(topic, size.bytes, -1 if rate is None else round(rate)))
        return tuple(held)

    def _names(self, group: GroupId) -> tuple[ConsumerGroupId, ...]:
        """The coordinator's consumer groups; none while it is suspended."""
        answer = self._asked(group, NameGroups())
        return answer.names if isinstance(answer, NameGroupsResponse) else ()

    def _listed(
        self, group: GroupId, names: tuple[ConsumerGroupId, ...]
    ) -> tuple[ListedGroup, ...]:
        answer = self._asked(group, ListGroups(names=names))
        return answer.groups if isinstance(answer, ListGroupsResponse) else ()

    def _asked(self, group: GroupId, request: Request) -> Response | None:
        """The answer, if there is one at once. A refusal has neither names nor groups."""
        answers: list[Response] = []
        self._broker.consumer_groups.ask(group, request, answers.append)
        return answers[0] if answers else None


def _consumers(
    group: GroupId, listed: ListedGroup, machine: GroupMachine, walk: _Walk
) -> Consumers | None:
    """A consumer group's report; None if the report has no room for it."""
    if walk.consumers >= CONSUMERS_MAX or walk.consumers_bytes >= CONSUMERS_BYTES_MAX:
        walk.cut = True
        return None
    walk.consumers += 1
    stored = machine.consumer_groups.get(listed.group)
    clients = [] if stored is None else _clients(stored)
    told = Consumers(
        name=listed.group[:TEXT_CHARS_MAX],
        state=listed.state,
        kind=listed.type,
        group=group,
        members=len(clients),
        clients=tuple(sorted(clients)[:CLIENTS_MAX]),
        committed=() if stored is None else tuple(_committed(stored, walk)),
    )
    walk.consumers_bytes += encoded_size(told)
    if walk.consumers_bytes > CONSUMERS_BYTES_MAX:
        walk.cut = True
        return None
    return told


def _clients(stored: StoredGroup) -> list[str]:
    assigned = stored.assigned.members if stored.assigned is not None else ()
    members = [(one.client_id, one.client_host) for one in stored.members.values()]
    members += [(one.client_id, one.client_host) for one in assigned]
    return [f"{client} {host}"[:TEXT_CHARS_MAX] for client, host in members]


def _committed(stored: StoredGroup, walk: _Walk) -> Iterator[Committed]:
    for topic, offsets in sorted(stored.offsets.items()):
        if walk.offsets + len(offsets) > OFFSETS_MAX:
            walk.cut = True
            return
        walk.offsets += len(offsets)
        indexes = sorted(offsets)
        yield Committed(topic, indexes, [_shown(offsets[index].offset) for index in indexes])


def _shown(offset: int) -> int:
    """The offset within the limits of a report: a client may commit any number."""
    return min(max(0, offset), NUMBER_MAX)
