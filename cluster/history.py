"""What clients saw, and whether a log could have shown it to them: a checker for histories.

The anomalies are those of `jepsen.tests.kafka` (Jepsen's Redpanda and Kafka analyses): no model of
the system, only rules that hold for every partition that is one log. A *key* is a topic and a
partition; the values sent to a key are unique. The history is a list of records, in the order in
which each process began what it did (order between processes comes from the times only):

- `send`: outcome `ok` (with the offset), `fail` (surely not done) or `info` (nobody knows: a
  timeout, a crash). An `info` that is read later has happened; one that is not has not, or not yet.
- `poll`: one message, as the reader got it.
- `assign`: the process starts to read the key anew, at `offset`.
- `subscribe`: from here on the process reads by subscription: a rebalance may make it skip or
  repeat, so only what it read counts, not the order.
- `drained`: the process has read the key up to `offset`, the position after the last message.

Times are monotonic nanoseconds of one machine. A `drained` reader stands for Jepsen's final phase:
it must have seen every message below its position, so a value lost from one replica's log is found
even though another reader saw it.
"""

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import attrs

EXAMPLES_MAX: Final = 5
"""Of each anomaly this many are described; the others are counted."""
LINE_BYTES_MAX: Final = 1024 * 1024

_T = TypeVar("_T")


class HistoryError(ValueError):
    """The file is not a history."""


class Op(StrEnum):
    SEND = "send"
    POLL = "poll"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    DRAINED = "drained"


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Key(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@attrs.define
class Record:
    """`value` is None for what carries none; `offset` is -1 where it is not known."""

    op: Op
    process: str
    key: Key
    value: str | None = None
    offset: int = -1
    outcome: Outcome = Outcome.OK
    began_ns: int = 0
    ended_ns: int = 0


class Anomaly(StrEnum):
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATE = "duplicate"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    LOST_ON_READER = "lost-on-reader"
    G1A = "G1a"
    UNEXPECTED = "unexpected"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    REALTIME_ORDER = "realtime-order"
    REUSED_VALUE = "reused-value"


MEANING: Final = {
    Anomaly.INCONSISTENT_OFFSETS: "one offset of a key was seen with two values",
    Anomaly.DUPLICATE: "one value was seen at two offsets",
    Anomaly.LOST_WRITE: "acknowledged, passed over by readers, and read by nobody",
    Anomaly.UNSEEN: "acknowledged, and read by nobody by the end",
    Anomaly.LOST_ON_READER: "a reader that read to the end did not get it",
    Anomaly.G1A: "a value whose send surely failed was read",
    Anomaly.UNEXPECTED: "a value that nobody sent was read",
    Anomaly.POLL_SKIP: "a reader jumped over an offset that exists",
    Anomaly.NONMONOTONIC_POLL: "a reader went back or repeated itself",
    Anomaly.NONMONOTONIC_SEND: "a later send of one process got a lower offset",
    Anomaly.REALTIME_ORDER: "a send got an offset not above one known before it began",
    Anomaly.REUSED_VALUE: "two sends have one value: the workload is broken",
}


@attrs.frozen
class Finding:
    anomaly: Anomaly
    key: Key
    detail: str

    def __str__(self) -> str:
        return f"{self.anomaly} on {self.key}: {self.detail}"


@attrs.define
class Report:
    """`findings` holds a few examples of each anomaly, `counts` how many there are."""

    counts: dict[Anomaly, int] = attrs.Factory(dict)
    findings: list[Finding] = attrs.Factory(list)
    sent: dict[Outcome, int] = attrs.Factory(lambda: dict.fromkeys(Outcome, 0))
    polled: int = 0
    recovered: int = 0
    """Sends of unknown outcome that were read, so they had happened."""
    tolerated: frozenset[Anomaly] = frozenset()

    @property
    def clean(self) -> bool:
        return not self.counts

    def add(self, anomaly: Anomaly, key: Key, detail: str) -> None:
        if anomaly in self.tolerated:
            return
        count = self.counts.get(anomaly, 0)
        self.counts[anomaly] = count + 1
        if count < EXAMPLES_MAX:
            self.findings.append(Finding(anomaly, key, detail))

    def summary(self) -> str:
        """The verdict for a person, one line per kind of anomaly with its examples below."""
        lines = [
            f"{self.sent[Outcome.OK]:,} acknowledged, {self.sent[Outcome.INFO]:,} unknown "
            f"({self.recovered:,} of them happened), {self.sent[Outcome.FAIL]:,} failed, "
            f"{self.polled:,} read: {'clean' if self.clean else 'NOT A LOG'}"
        ]
        for anomaly, count in self.counts.items():
            lines.append(f"{count} x {anomaly}: {MEANING[anomaly]}")
            lines += [
                f"  {one.key}: {one.detail}" for one in self.findings if one.anomaly == anomaly
            ]
        return "\n".join(lines)


@attrs.define
class _Log:
    """All that is known of one key: who is where, and who was told what."""

    key: Key
    sends: dict[str, Record] = attrs.Factory(dict)
    by_offset: dict[int, str] = attrs.Factory(dict)
    by_value: dict[str, int] = attrs.Factory(dict)
    polled: set[str] = attrs.Factory(set)
    highest_polled: int = -1
    offsets: list[int] = attrs.Factory(list)
    """Every offset that is known to exist, sorted."""


def check(history: Sequence[Record], *, idempotent: bool = True) -> Report:
    """Look for every anomaly; the report is clean exactly where none was found.

    Without idempotent producers a retry may store a value twice: then `duplicate` is legal.
    """
    report = Report(tolerated=frozenset() if idempotent else frozenset({Anomaly.DUPLICATE}))
    by_key: dict[Key, list[Record]] = defaultdict(list)
    for record in history:
        by_key[record.key].append(record)
    for key, records in sorted(by_key.items()):
        log = _Log(key)
        for record in records:
            if record.op == Op.SEND:
                _place_send(log, record, report)
            elif record.op == Op.POLL:
                _place_poll(log, record, report)
        log.offsets = sorted(log.by_offset)
        _check_sends(log, report)
        _check_send_order(log, records, report)
        _check_realtime_order(log, records, report)
        _check_readers(log, records, report)
    return report


def _place_send(log: _Log, send: Record, report: Report) -> None:
    assert send.value is not None, f"a send without a value: {send}"
    report.sent[send.outcome] += 1
    if send.value in log.sends:
        report.add(Anomaly.REUSED_VALUE, log.key, f"{send.value} was sent twice")
    log.sends[send.value] = send
    if send.outcome == Outcome.OK and send.offset >= 0:
        _place(log, send.offset, send.value, report)


def _place_poll(log: _Log, poll: Record, report: Report) -> None:
    assert poll.value is not None, f"a poll without a value: {poll}"
    report.polled += 1
    log.polled.add(poll.value)
    log.highest_polled = max(log.highest_polled, poll.offset)
    _place(log, poll.offset, poll.value, report)


def _place(log: _Log, offset: int, value: str, report: Report) -> None:
    other_value = log.by_offset.setdefault(offset, value)
    if other_value != value:
        detail = f"offset {offset} is {other_value} and {value}"
        report.add(Anomaly.INCONSISTENT_OFFSETS, log.key, detail)
    other_offset = log.by_value.setdefault(value, offset)
    if other_offset != offset:
        detail = f"{value} is at offsets {other_offset} and {offset}"
        report.add(Anomaly.DUPLICATE, log.key, detail)


def _check_sends(log: _Log, report: Report) -> None:
    """Every acknowledged value was read; nothing else was, but what may have happened."""
    for value, send in log.sends.items():
        if value in log.polled:
            if send.outcome == Outcome.FAIL:
                detail = f"{value} of {send.process} failed and was read"
                report.add(Anomaly.G1A, log.key, detail)
            report.recovered += send.outcome == Outcome.INFO
        elif send.outcome == Outcome.OK:
            lost = send.offset <= log.highest_polled
            detail = f"{value} of {send.process}, acknowledged at offset {send.offset}"
            report.add(Anomaly.LOST_WRITE if lost else Anomaly.UNSEEN, log.key, detail)
    for value in sorted(log.polled - log.sends.keys()):
        detail = f"{value} at offset {log.by_value[value]}"
        report.add(Anomaly.UNEXPECTED, log.key, detail)


def _check_send_order(log: _Log, records: Iterable[Record], report: Report) -> None:
    """The offsets one process got rise in the order in which it sent."""
    last: dict[str, Record] = {}
    for record in records:
        if record.op != Op.SEND or record.outcome != Outcome.OK or record.offset < 0:
            continue
        before = last.get(record.process)
        if before is not None and record.offset <= before.offset:
            detail = (
                f"{record.process} sent {before.value} (offset {before.offset}) "
                f"and then {record.value} (offset {record.offset})"
            )
            report.add(Anomaly.NONMONOTONIC_SEND, log.key, detail)
        last[record.process] = record


def _check_realtime_order(log: _Log, records: Iterable[Record], report: Report) -> None:
    """Whatever was known before a send began has a lower offset than it (linearizability)."""
    known = [
        record
        for record in records
        if record.offset >= 0
        and (record.op == Op.POLL or (record.op == Op.SEND and record.outcome == Outcome.OK))
    ]
    sends = sorted((one for one in known if one.op == Op.SEND), key=lambda one: one.began_ns)
    known.sort(key=lambda one: one.ended_ns)
    highest: Record | None = None
    position = 0
    for send in sends:
        while position < len(known) and known[position].ended_ns < send.began_ns:
            if highest is None or known[position].offset > highest.offset:
                highest = known[position]
            position += 1
        if highest is not None and send.offset <= highest.offset:
            detail = (
                f"{send.value} got offset {send.offset}, and {highest.value} at offset "
                f"{highest.offset} was known before it was sent"
            )
            report.add(Anomaly.REALTIME_ORDER, log.key, detail)


@attrs.define
class _Reader:
    """One process reading one key: where it began, what it got, where it is."""

    start: int = -1
    """Where it was assigned; -1 while it only has what it first got."""
    last: int = -1
    subscribed: bool = False
    got: set[int] = attrs.Factory(set)


def _check_readers(log: _Log, records: Iterable[Record], report: Report) -> None:
    readers: dict[str, _Reader] = defaultdict(_Reader)
    for record in records:
        reader = readers[record.process]
        match record.op:
            case Op.ASSIGN:
                readers[record.process] = _Reader(start=record.offset)
            case Op.SUBSCRIBE:
                reader.subscribed = True
            case Op.POLL:
                if not reader.subscribed:
                    _check_step(log, reader, record, report)
                reader.last = record.offset
                reader.got.add(record.offset)
            case Op.DRAINED:
                _check_drained(log, reader, record, report)
            case Op.SEND:
                pass


def _check_step(log: _Log, reader: _Reader, poll: Record, report: Report) -> None:
    """From one message to the next, or from the start of the assignment to the first one."""
    if reader.last >= 0 and poll.offset <= reader.last:
        detail = f"{poll.process} read offset {poll.offset} after {reader.last}"
        report.add(Anomaly.NONMONOTONIC_POLL, log.key, detail)
        return
    if reader.last < 0 and reader.start < 0:
        return
    low = bisect_right(log.offsets, reader.last) if reader.last >= 0 else _first(log, reader.start)
    skipped = log.offsets[low : bisect_left(log.offsets, poll.offset)]
    if skipped:
        detail = (
            f"{poll.process} came to offset {poll.offset} without {len(skipped)} before it, "
            f"the first at {skipped[0]} ({log.by_offset[skipped[0]]})"
        )
        report.add(Anomaly.POLL_SKIP, log.key, detail)


def _first(log: _Log, start: int) -> int:
    return bisect_left(log.offsets, start)


def _check_drained(log: _Log, reader: _Reader, drained: Record, report: Report) -> None:
    """It read to its end; and its end is not short of what was acknowledged before it looked."""
    low = _first(log, max(reader.start, 0))
    for offset in log.offsets[low:]:
        if offset in reader.got:
            continue
        send = log.sends.get(log.by_offset[offset])
        acknowledged = (
            send is not None
            and send.outcome == Outcome.OK
            and send.ended_ns < drained.began_ns
            and send.offset == offset
        )
        if offset < drained.offset or acknowledged:
            detail = (
                f"{drained.process} read up to {drained.offset} and did not get offset "
                f"{offset} ({log.by_offset[offset]})"
            )
            report.add(Anomaly.LOST_ON_READER, log.key, detail)


def write_jsonl(history: Iterable[Record], path: Path) -> None:
    """One record a line, short names: a history of a long run is large."""
    with path.open("w", encoding="utf-8") as file:
        for one in history:
            line = {
                "op": one.op,
                "process": one.process,
                "key": one.key,
                "value": one.value,
                "offset": one.offset,
                "outcome": one.outcome,
                "began_ns": one.began_ns,
                "ended_ns": one.ended_ns,
            }
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read_jsonl(path: Path) -> list[Record]:
    """Read what `write_jsonl` wrote.

    Raises:
        HistoryError: with the line that is not a record.
    """
    history: list[Record] = []
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), start=1):
            try:
                history.append(_record(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise HistoryError(f"{path}:{number}: not a record: {error}") from error
    return history


def _record(line: object) -> Record:
    if not isinstance(line, dict) or line.keys() != _FIELDS:
        raise ValueError(f"expected the fields {', '.join(sorted(_FIELDS))}")
    topic, partition = _typed(line["key"], list)
    value = line["value"]
    return Record(
        op=Op(_typed(line["op"], str)),
        process=_typed(line["process"], str),
        key=Key(_typed(topic, str), _typed(partition, int)),
        value=None if value is None else _typed(value, str),
        offset=_typed(line["offset"], int),
        outcome=Outcome(_typed(line["outcome"], str)),
        began_ns=_typed(line["began_ns"], int),
        ended_ns=_typed(line["ended_ns"], int),
    )


_FIELDS: Final = frozenset(field.name for field in attrs.fields(Record))


def _typed(value: object, wanted: type[_T]) -> _T:
    if not isinstance(value, wanted):
        raise ValueError(f"expected {wanted.__name__}, got {value!r}")
    return value
