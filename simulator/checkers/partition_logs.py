"""What must hold of a world with the production broker: the anomalies of docs/history.md.

The truth is the chosen log, as it is first applied, and what the clients say they sent; none of the
broker's own tables is consulted. A violation begins with the anomaly's name in the exam.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Final, NamedTuple

import attrs

from broker.proposals.commands import (
    DELETE_RECORDS_RESULT,
    RECORDS_RESULT,
    Command,
    CommandKind,
    parse,
    parse_delete_records,
    parse_fenced,
)
from paxos.entry import BeMaster, Control, Entry, Steal
from paxos.ids import SLOT_ZERO, GroupId, NodeId, Now, Slot
from paxos.lease import Lease
from simulator.checkers.groups import GroupLogs
from simulator.checkers.orders import Orders
from simulator.environment.violation import Violation
from wire.error_codes import ErrorCode
from wire.messages.fetch import PartitionData
from wire.records.batch import PATCHED_BYTES, parse_header, split
from wire.records.write_tokens import is_write_token

SHARE: Final = 0.9
"""At least this share of retention.bytes, which also counts files' headers, is left in batches."""
UNTOUCHED: Final = -1


@attrs.define(eq=False)
class Trims:
    """What may be deleted from the clients' topic: what was requested, or its settings allow."""

    asked: dict[int, int] = attrs.Factory(dict)
    """By number of the partition: the greatest offset below which deletion was requested."""
    bytes_least: int = UNTOUCHED
    """The lowest retention.bytes ever set; UNTOUCHED: none."""
    deleted: int = 0
    by_retention: int = 0

    def ask(self, partition: int, before: int) -> None:
        self.asked[partition] = max(before, self.asked.get(partition, 0))

    def keep(self, retention_bytes: int) -> None:
        """The setting is about to change."""
        known = self.bytes_least
        self.bytes_least = retention_bytes if known < 0 else min(known, retention_bytes)

    def trimmed(self, partition: int, start: int, bytes_left: int) -> None:
        """The log begins at `start` from now on."""
        self.deleted += 1
        if start <= self.asked.get(partition, 0):
            return
        self.by_retention += 1
        if self.bytes_least < 0 or bytes_left < SHARE * self.bytes_least:
            raise Violation(
                f"trim: partition {partition} begins at {start}, {self.asked.get(partition, 0)} "
                f"was asked for; {bytes_left} bytes are left of {self.bytes_least}"
            )


_NO_TIME: Final = Now(0, 0)


class Sent(NamedTuple):
    """A batch made by a client: its values are the numbers `first` to `first + records - 1`."""

    client: int
    partition: int
    first: int
    records: int


@attrs.define(eq=False)
class Log:
    """One partition according to the chosen log."""

    uid: int
    end: int = 0
    """The offset of the next record."""
    start: int = 0
    """Everything below has been deleted."""
    written: int = 0
    """Bytes of its batches, including deleted ones."""
    sizes: list[int] = attrs.Factory(list)
    """By number of a batch: the bytes of all batches before it."""
    acknowledged_to: int = 0
    bases: list[int] = attrs.Factory(list)
    batches: list[tuple[bytes, Sent]] = attrs.Factory(list)
    last: dict[int, int] = attrs.Factory(dict)
    """For each client, the greatest number that is in the log."""
    slots: dict[int, Slot] = attrs.Factory(dict)
    """For each client, the slot of its last batch."""
    slot: Slot = SLOT_ZERO
    """The slot of the last batch."""

    def bytes_from(self, offset: int) -> int:
        """Bytes of the batches from the one with this offset on."""
        if offset >= self.end:
            return 0
        return self.written - self.sizes[bisect_right(self.bases, offset) - 1]

    def at(self, offset: int) -> tuple[int, bytes, Sent]:
        """The batch that contains an offset, and its base."""
        number = bisect_right(self.bases, offset) - 1
        return self.bases[number], *self.batches[number]


class _Epochs:
    """The epoch of the group's lease under which each slot is applied."""

    def __init__(self) -> None:
        self._lease = Lease()
        self._slots: list[int] = []

    def applied(self, slot: Slot, control: Control) -> bool:
        """Returns whether the mastership is another one now."""
        epoch = self._lease.epoch
        if isinstance(control, BeMaster):
            self._lease.apply_be_master(slot, control, _NO_TIME, 0)
        elif isinstance(control, Steal):
            self._lease.apply_steal(slot, control, _NO_TIME, 0)
        changed = self._lease.epoch != epoch
        if changed:
            self._slots.append(slot)
        return changed

    def at(self, slot: Slot) -> int:
        return bisect_left(self._slots, slot)


class PartitionLogs:
    """Nothing lost, duplicated, reordered or invented, and every reader sees the same."""

    def __init__(self, groups: GroupLogs, orders: Orders, *, fresh: bool) -> None:
        self._groups = groups
        self._orders = orders
        self.fresh = fresh
        """Whether clocks are good enough for I7."""
        self.trims = Trims()
        self._epochs: defaultdict[GroupId, _Epochs] = defaultdict(_Epochs)
        self._sent: dict[bytes, Sent] = {}
        self.elsewhere: set[bytes] = set()
        """Batches of another topic, whose client (clients.recreated_topic) checks them."""
        self._given_up: set[tuple[int, int, int]] = set()
        self._failed: set[Sent] = set()
        self._silent: dict[int, Slot] = {}
        """Clients that ask for no answers, and the last slot of their partition when they began."""
        self._no_ops: dict[GroupId, Slot] = {}
        """The last slot that a new master filled because it found nothing there, or in which a node
        became master that was not handed the group."""
        self.logs: dict[int, Log] = {}
        """By number of the partition in its topic."""
        self.acknowledged = self.duplicates = self.refused = self.stale = self.fetches = 0
        self.lost_silently = 0

    # -- what clients do ----------------------------------------------------------------------

    def produced(self, sent: Sent, batch: bytes) -> None:
        """A client is about to send this batch, for the first time."""
        assert batch[PATCHED_BYTES:] not in self._sent
        self._sent[batch[PATCHED_BYTES:]] = sent

    def silent(self, sent: Sent) -> None:
        """The client of this batch, which is sent next, asks for no answers. What was in flight
        with a master that is lost may be missing before what came later: the next master keeps a
        vote that it finds, and fills a slot before it with a no-op if nobody remembers a vote. Or
        it puts entries of its own there, and a later master finds a vote beyond them."""
        if sent.client not in self._silent:
            log = self.logs.get(sent.partition)
            self._silent[sent.client] = SLOT_ZERO if log is None else log.slot

    def gave_up(self, sent: Sent) -> None:
        """The client no longer wants to know; the batch may be in the log, or get there."""
        for number in range(sent.first, sent.first + sent.records):
            self._given_up.add((sent.client, sent.partition, number))

    def failed(self, sent: Sent) -> None:
        """The client was told that the batch is not, and will not be, in the log."""
        self._failed.add(sent)
        self.gave_up(sent)
        log = self.logs.get(sent.partition)
        if log is not None and log.last.get(sent.client, 0) >= sent.first:
            raise Violation(f"G1a: {sent} was refused for good, and is in the log")

    def acked(self, sent: Sent, base_offset: int) -> None:
        """The client was told that the batch is at `base_offset`."""
        log = self.logs.get(sent.partition)
        if log is None or base_offset >= log.end:
            raise Violation(f"lost-write: {sent} is acknowledged at {base_offset}, after the end")
        base, _, there = log.at(base_offset)
        if base != base_offset or there != sent:
            raise Violation(
                f"lost-write: {sent} is acknowledged at {base_offset}, where {there} is"
            )
        log.acknowledged_to = max(log.acknowledged_to, base + sent.records)
        self.acknowledged += 1

    def known(self, sent: Sent) -> None:
        """The client was told that the batch is in the log, but not where."""
        log = self.logs.get(sent.partition)
        if log is None or all(there != sent for _, there in log.batches):
            raise Violation(f"lost-write: {sent} is called a duplicate, and is not in the log")
        self.acknowledged += 1

    def floor(self, partition: int) -> int:
        """The end that a fetch that begins now must see at least."""
        log = self.logs.get(partition)
        return 0 if log is None else log.acknowledged_to

    def fetched(
        self, node: NodeId, position: int, floor: int, data: PartitionData, *, hurried: bool = False
    ) -> int:
        """Check what a fetch at `position` returned; returns where the next one begins. `hurried`:
        it may not have waited for the disk (ADR 47), and so have no records."""
        self.fetches += 1
        log = self.logs.get(data.partition_index, Log(-1))
        if data.high_watermark > log.end:
            raise Violation(f"unexpected: node {node} says {data.high_watermark} of {log.end}")
        if data.high_watermark < floor:
            self.stale += 1
            if self.fresh:
                raise Violation(
                    f"I7: node {node} reads partition {data.partition_index} up to "
                    f"{data.high_watermark}, {floor} was acknowledged before"
                )
        records = b"".join(_chunks(data))
        if not records and position < data.high_watermark and not hurried:
            raise Violation(f"poll-skip: nothing at {position} of {data.high_watermark}")
        return self.compared(node, position, log, records)

    def told_start(self, partition: int, before: int, start: int) -> None:
        """A client asked to delete below `before`, and was told that the log begins at `start`."""
        log = self.logs.get(partition, Log(-1))
        if not before <= start <= log.start:
            raise Violation(f"trim: {start} is told for {before}, it begins at {log.start}")

    def out_of_range(self, node: NodeId, partition: int, position: int, floor: int) -> int:
        """A fetch at `position`, which a log that ends at `floor` or later should have, was told
        that the offset is out of range; returns where to continue."""
        log = self.logs.get(partition, Log(-1))
        if log.start <= position <= floor and self.fresh:
            raise Violation(
                f"poll-skip: node {node} has no {position}, there are {log.start} to {log.end}"
            )
        return max(log.start, min(position, floor))

    def compared(self, node: NodeId, position: int, log: Log, records: bytes) -> int:
        """Check what a node has at `position`; returns the offset after it."""
        for header, content in split(memoryview(records)):
            base, known, sent = log.at(position) if position < log.end else (-1, b"", None)
            if header.base_offset != base:
                raise Violation(f"poll-skip: {header.base_offset} comes at {position}: {sent}")
            if content[PATCHED_BYTES:] != known:
                raise Violation(f"inconsistent-offsets: node {node}, {base} is {sent} elsewhere")
            assert sent is not None
            position = base + sent.records
        return position

    # -- what nodes do ------------------------------------------------------------------------

    def no_op(self, group: GroupId, slot: Slot) -> None:
        """A node has applied a no-op, perhaps not as the first."""
        self._no_ops[group] = max(slot, self._no_ops.get(group, SLOT_ZERO))

    def applied(self, group: GroupId, slot: Slot, entry: Entry, results: list[bytes]) -> None:
        """No node has applied this slot before; `results` are those of its commands."""
        epoch_then = self._epochs[group].at(slot)
        for command, result in zip(parse(entry.payload()), results, strict=True):
            fenced = command.kind == CommandKind.FENCED
            epoch, inner = parse_fenced(command) if fenced else (epoch_then, command)
            if self._orders.applied(inner, result):
                continue
            if inner.kind == CommandKind.RECORDS:
                self._append(group, slot, inner, result)
            elif inner.kind == CommandKind.DELETE_RECORDS:
                self._trim(inner.body, result)
            elif inner.kind == CommandKind.CONSUMER_GROUP:
                self._groups.applied(inner.body, result, late=epoch != epoch_then)

    def lease_entry(self, group: GroupId, slot: Slot, control: Control) -> None:
        """A node has applied a lease entry, perhaps not as the first."""
        if self._epochs[group].applied(slot, control) and isinstance(control, BeMaster):
            self.no_op(group, slot)

    def _trim(self, body: memoryview, result: bytes) -> None:
        uid, _ = parse_delete_records(body)
        error, start = DELETE_RECORDS_RESULT.unpack(result)
        for number, log in self.logs.items():
            if log.uid == uid and error == ErrorCode.NONE and start > log.start:
                if start > log.end:
                    raise Violation(f"trim: partition {number} begins at {start} of {log.end}")
                self.trims.trimmed(number, start, log.bytes_from(start))
                log.start = start

    def _append(self, group: GroupId, slot: Slot, command: Command, result: bytes) -> None:
        uid, batch = command.uid, command.body
        error, base, _ = RECORDS_RESULT.unpack(result)
        content = bytes(batch[PATCHED_BYTES:])
        if content in self.elsewhere:
            return
        sent = self._sent.get(content)
        if sent is None:
            raise Violation(f"unexpected: nobody sent what is in partition {uid}")
        log = self.logs.setdefault(sent.partition, Log(uid))
        if log.uid != uid:
            raise Violation(f"unexpected: {sent} is in partition {uid}, others in {log.uid}")
        if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and base < 0:
            self.duplicates += 1
            if is_write_token(parse_header(batch).producer_id):
                self._check_there(log, sent)
        elif error not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.refused += 1
        elif base < log.end:
            self.duplicates += 1
            if log.at(base) != (base, content, sent):
                raise Violation(f"inconsistent-offsets: {sent} is called a duplicate of {base}")
        else:
            self._check_order(group, log, sent)
            self._append_new(log, sent, base, content)
            log.slot = log.slots[sent.client] = slot

    def _check_there(self, log: Log, sent: Sent) -> None:
        """A writer is told that a chunk is there, and continues with what comes next."""
        if log.last.get(sent.client, 0) < sent.first:
            raise Violation(f"lost-write: {sent} is called a duplicate, and is not in the log")

    def _check_order(self, group: GroupId, log: Log, sent: Sent) -> None:
        last = log.last.get(sent.client, 0)
        if sent.first <= last:
            raise Violation(f"duplicate: {sent} is appended after {last} of the same client")
        for number in range(last + 1, sent.first):
            if (sent.client, sent.partition, number) in self._given_up:
                continue
            began, no_op = self._silent.get(sent.client), self._no_ops.get(group, SLOT_ZERO)
            if began is not None and no_op > log.slots.get(sent.client, began):
                self.lost_silently += 1
                continue
            raise Violation(f"nonmonotonic-send: {sent} is appended, {number} is not")

    def _append_new(self, log: Log, sent: Sent, base: int, content: bytes) -> None:
        if base != log.end:
            raise Violation(f"poll-skip: {sent} is given offset {base} after {log.end}")
        if sent in self._failed:
            raise Violation(f"G1a: {sent} was refused for good, and is appended")
        log.last[sent.client] = sent.first + sent.records - 1
        log.sizes.append(log.written)
        log.written += PATCHED_BYTES + len(content)
        log.bases.append(base)
        log.batches.append((content, sent))
        log.end = base + sent.records


def _chunks(data: PartitionData) -> list[bytes]:
    records = data.records
    if records is None:
        return []
    return [bytes(records)] if isinstance(records, bytes | memoryview) else [*map(bytes, records)]
