"""The order of what one client sends to one partition without sequences (docs/protocol.md F4).

Every attempt is a batch of its own, which contains the order it belongs to and its number there. In
the log, the batches of one order are in sequence. If one was refused, none that was sent behind it
on its connection, before its client could know, is acknowledged. What has timed out may appear in
the log at any time, so a time-out begins a new order; so does a new connection.
"""

from collections import Counter
from typing import Final

import attrs

from simulator.checkers.partition_logs import PartitionLogs, Sent
from simulator.environment.violation import Violation
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

UNANSWERED, ACKED, REFUSED, GONE = range(4)
ORDERS_OF_ONE: Final = 32
"""Bits of a name that give the number of the client's order."""


@attrs.define(eq=False)
class Attempt:
    """A message sent once. `sent.client` is the order it belongs to."""

    sent: Sent
    data: bytes
    connection: int
    place: int
    message: int
    state: int = UNANSWERED
    behind: "list[Attempt]" = attrs.Factory(list)
    """Refused attempts before it, of which the client had not heard when it sent this one."""


class Sending:
    """One client and one partition. `answered`: whether it asks for answers. Without them nothing
    may be missing between two batches of one connection: only the connection's end reveals a
    refusal, unless a new master filled a gap with a no-op (`PartitionLogs.silent`)."""

    def __init__(
        self,
        truth: PartitionLogs,
        statistics: Counter[str],
        client: int,
        partition: int,
        *,
        answered: bool = True,
    ) -> None:
        self._truth, self._statistics = truth, statistics
        self._client, self._partition, self._answered = client, partition, answered
        self.of_connection: list[Attempt] = []
        """All attempts on the connection used last, in order."""
        self._orders = self._number = self._place = 0

    def _begin_order(self) -> None:
        self._orders += 1
        self._number = 0

    def attempt(self, connection: int, message: int, pad: bytes = b"") -> Attempt:
        """Make one more attempt, which is sent now."""
        if not self.of_connection or self.of_connection[-1].connection != connection:
            self.of_connection = []
            self._begin_order()
        self._place += 1
        self._number += 1
        order = self._client << ORDERS_OF_ONE | self._orders
        sent = Sent(order, self._partition, self._number, 1)
        value = b"%d/%d/%d/%d" % (order, self._partition, self._number, message)
        attempt = Attempt(
            sent, build_batch([Record(value + pad)]), connection, self._place, message
        )
        if not self._answered:
            self._truth.silent(sent)
        self._truth.produced(sent, attempt.data)
        if self._answered:
            self._truth.gave_up(sent)  # it may never get into the log
        self.of_connection.append(attempt)
        return attempt

    def acked(self, attempt: Attempt, base_offset: int) -> None:
        attempt.state = ACKED
        self._truth.acked(attempt.sent, base_offset)
        for before in attempt.behind:
            self._check(before, attempt)

    def gone(self, attempt: Attempt, *, goes_on: bool = False) -> None:
        """It was not answered: it may be in the log, or get there. `goes_on`: its connection stays
        in use."""
        attempt.state = GONE
        if goes_on:
            self._begin_order()

    def refused(self, attempt: Attempt, *, definitely: bool) -> None:
        attempt.state = REFUSED
        self._statistics["pipelined and refused"] += 1
        if definitely:
            self._truth.failed(attempt.sent)
        else:
            self._begin_order()
        for later in self.of_connection:  # all sent behind it were sent before this moment
            if later.connection == attempt.connection and later.place > attempt.place:
                if later.state == ACKED:
                    self._check(attempt, later)
                elif later.state == UNANSWERED:
                    later.behind.append(attempt)

    def _check(self, refused: Attempt, later: Attempt) -> None:
        """A time-out is no refusal if the batch is in the log after all, before later ones."""
        log = self._truth.logs[refused.sent.partition]
        if all(there != refused.sent for _, there in reversed(log.batches)):
            raise Violation(
                f"overtaken: {refused.sent} was refused, and {later.sent}, sent before its client "
                "could know, acknowledged"
            )
        self._statistics["pipelined and late"] += 1
