"""Everything a history says about one key: its log's values by offset, and what processes saw."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

import attrs

from history.anomaly import Anomaly, Report, Verdict
from history.record import UNKNOWN, Key, Op, Outcome, Record


@attrs.frozen(kw_only=True)
class Options:
    """The guarantees that the clients of this history had."""

    idempotent: bool = True
    """Without idempotent producers a retry may store a value twice: then `duplicate` is allowed."""
    clock_error_ns: int = 0
    """How far two processes' clocks may differ; only events further apart have an order."""
    lag_ns_max: int | None = None
    """If set, it is bad for a reader to be further behind than this while there is no fault."""


@attrs.define
class Known:
    key: Key
    in_order: list[Record] = attrs.Factory(list)
    """The sends, in the order in which they began."""
    sends: dict[str, Record] = attrs.Factory(dict)
    by_offset: dict[int, str] = attrs.Factory(dict)
    by_value: dict[str, list[int]] = attrs.Factory(dict)
    reads: dict[str, list[Record]] = attrs.Factory(lambda: defaultdict(list))
    """The records of each reader, by process."""
    others: dict[Op, list[Record]] = attrs.Factory(lambda: defaultdict(list))
    polled: set[str] = attrs.Factory(set)
    lowest_polled: int = UNKNOWN
    highest_polled: int = UNKNOWN
    offsets: list[int] = attrs.Factory(list)
    """Every offset that is known to exist, sorted."""
    log_start: int = 0
    """Everything below it was removed legitimately (retention)."""
    _known_above_ns: list[int] = attrs.Factory(list)
    """For each of `offsets`: when it or a higher one was first known for certain; 0: no time."""
    _first_known_ns: dict[int, int] = attrs.Factory(dict)

    # -- taking records in --------------------------------------------------------------------

    def place_send(self, send: Record, report: Report) -> None:
        assert send.value is not None
        if send.value in self.sends:
            report.add(Anomaly.REUSED_VALUE, self.key, f"{send.value} was sent twice")
        self.sends[send.value] = send
        if send.outcome == Outcome.OK and send.offset != UNKNOWN:
            self._place(send, send.value, report)

    def place_poll(self, poll: Record, report: Report) -> None:
        assert poll.value is not None
        self.polled.add(poll.value)
        self.highest_polled = max(self.highest_polled, poll.offset)
        if self.lowest_polled == UNKNOWN or poll.offset < self.lowest_polled:
            self.lowest_polled = poll.offset
        self._place(poll, poll.value, report)

    def _place(self, record: Record, value: str, report: Report) -> None:
        offset = record.offset
        other_value = self.by_offset.setdefault(offset, value)
        if other_value != value:
            detail = f"offset {offset} is {other_value} and {value}"
            report.add(Anomaly.INCONSISTENT_OFFSETS, self.key, detail)
        at = self.by_value.setdefault(value, [])
        if offset not in at:
            at.append(offset)
        if record.ended_ns:
            known_ns = self._first_known_ns.get(offset)
            if known_ns is None or record.ended_ns < known_ns:
                self._first_known_ns[offset] = record.ended_ns

    def finish(self) -> None:
        """Prepare the answers to questions, once all records are in."""
        self.in_order.sort(key=lambda one: one.began_ns)
        self.offsets = sorted(self.by_offset)
        starts = [one.offset for one in self.others[Op.EARLIEST]]
        self.log_start = max(starts, default=0)
        known_ns = 0
        for offset in reversed(self.offsets):
            own_ns = self._first_known_ns.get(offset, 0)
            known_ns = min(known_ns, own_ns) if known_ns and own_ns else known_ns or own_ns
            self._known_above_ns.append(known_ns)
        self._known_above_ns.reverse()

    # -- questions ----------------------------------------------------------------------------

    def offsets_between(self, low: int, high: int) -> list[int]:
        """Offsets from `low` to below `high` that exist and were not removed by retention."""
        low = max(low, self.log_start)
        return self.offsets[bisect_left(self.offsets, low) : bisect_left(self.offsets, high)]

    def offsets_from(self, low: int) -> list[int]:
        return self.offsets[bisect_left(self.offsets, max(low, self.log_start)) :]

    def known_above(self, offset: int) -> int | None:
        """When an offset above this one was first known to exist; None if there is none, or no
        time is known."""
        place = bisect_right(self.offsets, offset)
        return self._known_above_ns[place] or None if place < len(self.offsets) else None

    def polls(self) -> Iterator[Record]:
        for process in sorted(self.reads):
            yield from (one for one in self.reads[process] if one.op == Op.POLL)

    def last_of_each_poll(self) -> Iterator[Record]:
        """The last message of every poll, which is how far it got: one call may return many."""
        for process in sorted(self.reads):
            yield from _last_of_each(self.reads[process])

    def duplicates(self, options: Options, report: Report) -> None:
        verdict = Verdict.BAD if options.idempotent else Verdict.ALLOWED
        for value, offsets in self.by_value.items():
            for offset in offsets[1:]:
                detail = f"{value} is at offsets {offsets[0]} and {offset}"
                report.add(Anomaly.DUPLICATE, self.key, detail, verdict)


def _last_of_each(reads: Iterable[Record]) -> Iterator[Record]:
    last: Record | None = None
    for record in reads:
        if record.op != Op.POLL:
            continue
        if last is not None and not same_poll(last, record):
            yield last
        last = record
    if last is not None:
        yield last


def same_poll(earlier: Record, later: Record) -> bool:
    """Whether two messages of one reader came with one call, as far as the times tell."""
    return earlier.began_ns == later.began_ns != 0 and earlier.process == later.process
