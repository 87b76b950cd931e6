"""All offsets of a large consumer group, asked for slice by slice: nobody else waits for them."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.ports import Reply
from broker.requests.context import Broker
from broker.requests.steps import STEP
from coordinator import model
from coordinator.model import NO_OFFSET
from coordinator.replicated.stored import StoredGroup
from paxos.ids import GroupId

ROW_BYTES: Final = 150
"""Of a committed offset, in memory."""


class AllOffsets:
    """An OffsetFetch that names no topics, of a group with more than STEP offsets whose coordinator
    is this node. Each slice is answered, or refused, under the mastership of its own moment;
    `answered` gets them all as one, or the first refusal."""

    def __init__(
        self,
        broker: Broker,
        paxos_group: GroupId,
        asked: model.OffsetFetch,
        stored: StoredGroup,
        answered: Callable[[model.Response], None],
        reply: Reply,
    ) -> None:
        self._broker, self._paxos_group, self._asked = broker, paxos_group, asked
        self._stored, self._answered, self._reply = stored, answered, reply
        self._bytes = 0
        self._under_way = 1  # the walk itself
        self._error = model.ErrorCode.NONE
        self._rows: dict[str, list[model.PartitionOffset]] = {}

    def steps(self) -> Iterator[None]:
        """Yield after each STEP of offsets."""
        try:
            yield from self._walk()
        except Exception:
            self._error = model.ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._done()  # what is held goes once the slices under way are answered
            raise
        self._done()

    def _walk(self) -> Iterator[None]:
        """Offsets of topics that do not exist any more are left out by the coordinator."""
        slice_of: list[model.TopicPartitions] = []
        size = 0
        for topic in sorted(self._stored.offsets):
            partitions = sorted(self._stored.offsets.get(topic, ()))
            while partitions:
                part, partitions = partitions[: STEP - size], partitions[STEP - size :]
                slice_of.append(model.TopicPartitions(topic, tuple(part)))
                size += len(part)
                if size == STEP:
                    self._ask(slice_of)
                    slice_of, size = [], 0
                    yield
                    if self._reply.has_hung_up():
                        self._error = model.ErrorCode.COORDINATOR_NOT_AVAILABLE  # for nobody
        self._ask(slice_of)

    def _ask(self, slice_of: list[model.TopicPartitions]) -> None:
        if self._error:
            return
        asked = model.OffsetFetch(
            group=self._asked.group,
            topics=tuple(slice_of),
            member_id=self._asked.member_id,
            epoch=self._asked.epoch,
        )
        self._under_way += 1
        try:
            self._broker.consumer_groups.ask(self._paxos_group, asked, self._on_answer)
        except Exception:
            self._under_way -= 1  # no answer will come
            raise

    def _on_answer(self, answer: model.Response) -> None:
        assert isinstance(answer, model.OffsetFetchResponse)
        self._error = self._error or answer.error
        for topic in answer.topics:
            known = [one for one in topic.partitions if one.offset != NO_OFFSET]
            if known:
                self._rows.setdefault(topic.topic, []).extend(known)
                self._bytes += ROW_BYTES * len(known)
                self._broker.portions.bytes += ROW_BYTES * len(known)
        self._done()

    def _done(self) -> None:
        self._under_way -= 1
        if self._under_way:
            return
        self._broker.portions.bytes -= self._bytes
        rows = {} if self._error else self._rows
        topics = tuple(model.TopicOffsets(name, tuple(some)) for name, some in rows.items())
        self._answered(model.OffsetFetchResponse(error=self._error, topics=topics))


def ask_for_offsets(
    broker: Broker,
    paxos_group: GroupId | None,
    asked: model.OffsetFetch,
    answered: Callable[[model.Response], None],
    reply: Reply,
) -> Iterator[None]:
    """Ask the coordinator, in steps if it is here and the group has many offsets."""
    stored = None
    if asked.topics is None and paxos_group is not None:
        stored = broker.consumer_groups.stored(paxos_group, asked.group)
    if stored is None or stored.offsets_count <= STEP or paxos_group is None:
        broker.consumer_groups.ask(paxos_group, asked, answered, reply.has_hung_up)
        return
    yield from AllOffsets(broker, paxos_group, asked, stored, answered, reply).steps()
