"""One topic read by several members, by slices of its keys; each slice has a checkpoint of its own.

    async def total(lease, records):
        ...

    async with TaskGroup("localhost:9092", "totals") as group:
        await group.submit(slices("orders", 8))
        await group.run(SliceReader("localhost:9092", 8, total))

Every slice is a task. Its holder reads the whole topic, hands over the records whose keys belong to
the slice, and regularly writes a checkpoint of its position in each partition. So members share the
work on records, not the reading of them: to share the reading, use partitions. The ledger stores
the checkpoints, and accepts one only from the holder of the task: a member that has lost a slice
cannot set back its next owner.

Records are handed over at least once: after a member has died, again from the last checkpoint on. A
topic that was deleted and recreated under its name is read from its beginning.
"""

import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from evenkeel.admin.admin import Admin
from evenkeel.config import ClientConfig, ConsumerConfig, OffsetReset
from evenkeel.consumer.consumer import Consumer
from evenkeel.consumer.fetched import ConsumerRecord, Records
from evenkeel.errors import ConfigurationError, EvenkeelError, LeaseLostError
from evenkeel.tasks.events import TaskLease
from evenkeel.tasks.notes import CHECKPOINT_BYTES_MAX
from evenkeel.tasks.sharding import slice_of, slices, topic_of
from wire.cluster_view import TopicPartition

VERSION: Final = 1
_HEAD: Final = struct.Struct(">B16s")
PARTITIONS_MAX: Final = (CHECKPOINT_BYTES_MAX - _HEAD.size) // 8
"""A checkpoint has room for this many positions."""
CHECKPOINT_EVERY_S: Final = 5.0
TOPIC_AGAIN_S: Final = 10.0
"""How often to check whether the topic has grown or was recreated."""
AGAIN_S: Final = 1.0
"""Pause after no broker could be asked."""
LAST_CHECKPOINT_AGAIN_S: Final = 0.05
"""Pause after a last checkpoint that was not written."""

Handle = Callable[[TaskLease, Sequence[ConsumerRecord]], Awaitable[None]]


@attrs.define
class Positions:
    """The progress of a slice: the next offset of each partition of the topic with this id."""

    topic_id: bytes = bytes(16)
    next: list[int] = attrs.Factory(list)

    def fit(self, topic_id: bytes, partitions: int) -> bool:
        """Extend to the topic's number of partitions; returns whether the topic is another than
        before."""
        another = self.topic_id != topic_id
        if another:
            self.topic_id, self.next = topic_id, []
        if partitions > PARTITIONS_MAX:
            raise ConfigurationError(
                f"a topic of {partitions} partitions cannot be read by slices",
                why=f"a checkpoint has room for {PARTITIONS_MAX} positions",
                advice="share its partitions in a consumer group",
            )
        self.next += [0] * (partitions - len(self.next))
        return another

    def encode(self) -> bytes:
        return _HEAD.pack(VERSION, self.topic_id) + struct.pack(f">{len(self.next)}q", *self.next)

    @classmethod
    def decode(cls, data: bytes) -> "Positions":
        """Empty bytes are a slice that no member has begun.

        Raises:
            ConfigurationError: if these are not positions.
        """
        if not data:
            return cls()
        count, rest = divmod(len(data) - _HEAD.size, 8)
        if count < 0 or rest or data[0] != VERSION:
            raise ConfigurationError(
                "the checkpoint of a slice cannot be read", advice="withdraw the task, submit it"
            )
        found = struct.unpack_from(f">{count}q", data, _HEAD.size)
        return cls(_HEAD.unpack_from(data)[1], list(found))


def belongs(record: ConsumerRecord, task: str, count: int) -> bool:
    """Whether a record belongs to this slice. A record without a key goes by its partition."""
    topic = topic_of(task)
    if record.key is None:
        return task == f"{topic}/{record.partition % count}"
    return task == slice_of(topic, record.key, count)


class SliceReader:
    """Pass this to `TaskGroup.run`: it reads the slice that is the task of the lease.

    All members need the same `count`, with which the tasks were created (`slices`). `handle` gets
    the lease and some records of one partition, in order; when it returns, they are done.
    """

    def __init__(
        self,
        bootstrap: str,
        count: int,
        handle: Handle,
        *,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
        client: ClientConfig | None = None,
    ) -> None:
        self._bootstrap, self._count, self._handle = bootstrap, count, handle
        self._checkpoint_every_s = checkpoint_every_s
        self._client = client

    async def __call__(self, lease: TaskLease) -> None:
        if lease.task not in slices(topic_of(lease.task), self._count):
            raise ConfigurationError(
                f"'{lease.task}' is not one of {self._count} slices",
                advice=f'submit slices("{topic_of(lease.task)}", {self._count})',
            )
        config = ConsumerConfig(offset_reset=OffsetReset.EARLIEST)
        async with (
            Admin(self._bootstrap, client=self._client) as admin,
            Consumer(self._bootstrap, config, client=self._client) as consumer,
        ):
            reading = _Reading(lease, Positions.decode(lease.checkpointed), admin, consumer)
            try:
                await self._read(reading)
            except LeaseLostError:
                await trio.sleep_forever()  # another member has it, and we are about to be stopped
            finally:
                await reading.last_checkpoint()

    async def _read(self, reading: "_Reading") -> None:
        now = trio.current_time()
        look_at, checkpoint_at = now, now + self._checkpoint_every_s
        while True:
            now = trio.current_time()
            if now >= look_at:
                look_at = now + (TOPIC_AGAIN_S if await reading.look() else AGAIN_S)
            if now >= checkpoint_at:
                await reading.checkpoint()
                checkpoint_at = now + self._checkpoint_every_s
            records = await reading.some(min(look_at, checkpoint_at))
            if records is None:
                continue
            task = reading.lease.task
            mine = [one for one in records if belongs(one, task, self._count)]
            if not reading.lease.held:
                raise LeaseLostError(f"the lease on '{task}' is over")
            if mine:
                await self._handle(reading.lease, mine)
            reading.done(records)


@attrs.define(eq=False)
class _Reading:
    """One slice, while we hold it."""

    lease: TaskLease
    positions: Positions
    admin: Admin
    consumer: Consumer
    written: bytes = b""

    async def look(self) -> bool:
        """Read all present partitions of the topic; False if no node could be asked."""
        topic = topic_of(self.lease.task)
        try:
            found = await self.admin.describe_topic(topic)
        except EvenkeelError as error:
            if not error.retriable:
                raise
            return False
        count, known = len(found.partitions), len(self.consumer.assignment)
        if self.positions.fit(bytes.fromhex(found.topic_id), count):
            known = 0
            await self.consumer.assign([])
        if known < count:
            places = [TopicPartition(topic, number) for number in range(count)]
            await self.consumer.assign(places)
            for place in places[known:]:
                self.consumer.seek(place, self.positions.next[place.partition])
        return True

    async def some(self, until: float) -> Records | None:
        with trio.move_on_at(until):
            try:
                return await anext(self.consumer)
            except EvenkeelError as error:
                if not error.retriable:
                    raise
                await trio.sleep_until(until)
        return None

    def done(self, records: Records) -> None:
        self.positions.next[records.place.partition] = records.records[-1].offset + 1

    async def checkpoint(self) -> bool:
        """Whether it is known to be written; if not, the next one makes up for it."""
        if (value := self.positions.encode()) != self.written:
            try:
                await self.lease.checkpoint(value)
                self.written = value
            except EvenkeelError as error:
                if not error.retriable:
                    raise
                return False
        return True

    async def last_checkpoint(self) -> None:
        """Write a last checkpoint, also while being cancelled, for as long as the slice is ours.

        Otherwise the next holder would get the records since the last checkpoint again.
        """
        if not self.positions.next:
            return
        written = False
        with trio.CancelScope(shield=True), suppress(EvenkeelError):
            while not written and (left_s := self.lease.left_s) > 0:
                with trio.move_on_after(left_s):
                    written = await self.checkpoint()
                    if not written:
                        await trio.sleep(LAST_CHECKPOINT_AGAIN_S)
