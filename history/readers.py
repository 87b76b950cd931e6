"""The rules for who reads: nothing is jumped over, nothing comes twice, the end is the end."""

import attrs

from history.anomaly import Anomaly, Report, Verdict
from history.known import Known, Options, same_poll
from history.record import Op, Outcome, Record


@attrs.define
class _Reader:
    """One process reading one key: where it began, what it got, where it is."""

    start: int = -1
    """Where it was assigned; -1 while it only has what it first got."""
    last: Record | None = None
    subscribed: bool = False
    """By subscription a rebalance may make it skip or repeat: only what it read counts."""
    got: set[int] = attrs.Factory(set)

    @property
    def next_offset(self) -> int:
        return self.start if self.last is None else self.last.offset + 1


def check(known: Known, options: Options, report: Report) -> None:
    for process in sorted(known.reads):
        reader = _Reader()
        for record in known.reads[process]:
            match record.op:
                case Op.ASSIGN:
                    reader = _Reader(start=record.offset)
                case Op.SUBSCRIBE:
                    reader.subscribed = True
                case Op.POLL if record.value is not None:
                    _check_step(known, reader, record, report)
                    reader.last = record
                    reader.got.add(record.offset)
                case Op.DRAINED:
                    _check_drained(known, reader, record, options, report)
                case _:
                    pass


def _check_step(known: Known, reader: _Reader, poll: Record, report: Report) -> None:
    """From one message to the next, or from the start of the assignment to the first one."""
    verdict = Verdict.ALLOWED if reader.subscribed else Verdict.BAD
    last = reader.last
    within = last is not None and same_poll(last, poll)
    if reader.next_offset < 0:
        return
    if poll.offset < reader.next_offset:
        came = f"after {last.offset}" if last is not None else f"assigned at {reader.start}"
        detail = f"{poll.process} read offset {poll.offset} {came}"
        back = Anomaly.INT_NONMONOTONIC_POLL if within else Anomaly.NONMONOTONIC_POLL
        report.add(back, known.key, detail, verdict)
        return
    skipped = known.offsets_between(reader.next_offset, poll.offset)
    if skipped:
        detail = (
            f"{poll.process} came to offset {poll.offset} without {len(skipped)} before it, "
            f"the first at {skipped[0]} ({known.by_offset[skipped[0]]})"
        )
        skip = Anomaly.INT_POLL_SKIP if within else Anomaly.POLL_SKIP
        report.add(skip, known.key, detail, verdict)


def _check_drained(
    known: Known, reader: _Reader, drained: Record, options: Options, report: Report
) -> None:
    """It read to its end; and its end is not short of what was acknowledged before it looked."""
    missing = Anomaly.LOST_ON_READER if drained.value is None else Anomaly.LOST_ON_NODE
    whose = "" if drained.value is None else f"of {drained.value} "
    for offset in known.offsets_from(max(reader.start, 0)):
        if offset in reader.got:
            continue
        send = known.sends.get(known.by_offset[offset])
        acknowledged = (
            send is not None
            and send.outcome == Outcome.OK
            and send.ended_ns > 0
            and send.ended_ns + options.clock_error_ns < drained.began_ns
            and send.offset == offset
        )
        if offset < drained.offset or acknowledged:
            detail = (
                f"{drained.process} read the log {whose}up to {drained.offset} and did not get "
                f"offset {offset} ({known.by_offset[offset]})"
            )
            report.add(missing, known.key, detail)
