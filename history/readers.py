"""The rules for readers: nothing is skipped, nothing comes twice, and the end is reached."""

import attrs

from history.anomaly import Anomaly, Report, Verdict
from history.known import Known, Options, same_poll
from history.record import Op, Outcome, Record


@attrs.define
class _Reader:
    """One process reading one key: where it began, what it got, where it is."""

    start: int = -1
    """The offset it was assigned at; -1 if it was not assigned: then it begins with its first
    message."""
    last: Record | None = None
    subscribed: bool = False
    """A rebalance may make a subscribed reader skip or repeat: that is allowed."""
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
    """Check the step from the last message, or from the start of the assignment, to this one."""
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
    """The reader got everything below its end, and everything acknowledged before it looked."""
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
