"""A member's notes on their way into the ledger: in order, and each with an outcome."""

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

from evenkeel.errors import DeliveryError, EvenkeelError
from evenkeel.producer.producer import Delivery, Producer
from evenkeel.tasks.notes import Note, encode
from wire.cluster_view import TopicPartition

AGAIN_S: Final = 0.2
"""Pause before a failed note is written again."""
IN_FLIGHT_NOTES_MAX: Final = 1024
"""Notes sent and not acknowledged; above it the next ones wait."""


@attrs.define(eq=False)
class Outbox:
    """Calls `failed` for every note that may not be in the ledger."""

    producer: Producer
    place: TopicPartition
    failed: Callable[[Note], None]
    written_count: int = 0
    failed_count: int = 0
    _waiting: deque[Note] = attrs.Factory(deque)
    _in_flight: deque[tuple[Note, Delivery]] = attrs.Factory(deque)
    _changed: trio.Event = attrs.Factory(trio.Event)

    def put(self, note: Note) -> None:
        """Write this note after all others; does not wait."""
        self._waiting.append(note)
        self._something_new()

    async def write(self, note: Note) -> None:
        """Write this note at once, and wait until it is in the ledger.

        Raises:
            EvenkeelError: if it may not be.
        """
        data = encode(note)
        await (await self.producer.send(self.place.topic, data, partition=self.place.partition))
        self.written_count += 1

    async def empty(self) -> None:
        """Wait until every note has its outcome."""
        while self._waiting or self._in_flight:
            await self._changed.wait()

    async def send(self) -> None:
        """A task for the owner: sends the notes that wait."""
        while True:
            changed = self._changed
            if not self._waiting or len(self._in_flight) >= IN_FLIGHT_NOTES_MAX:
                await changed.wait()
                continue
            note = self._waiting[0]
            try:
                delivery = await self.producer.send(
                    self.place.topic, encode(note), partition=self.place.partition
                )
            except EvenkeelError as error:
                if not error.retriable:
                    raise
                await self._has_failed(note)
            else:
                self.written_count += 1
                self._in_flight.append((note, delivery))
            self._waiting.popleft()
            self._something_new()

    async def settle(self) -> None:
        """Another task: waits for the outcome of the notes sent."""
        while True:
            changed = self._changed
            if not self._in_flight:
                await changed.wait()
                continue
            note, delivery = self._in_flight[0]
            try:
                await delivery
            except DeliveryError:
                await self._has_failed(note)
            self._in_flight.popleft()
            self._something_new()

    async def _has_failed(self, note: Note) -> None:
        self.failed_count += 1
        await trio.sleep(AGAIN_S)
        self.failed(note)

    def _something_new(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
