"""The rules for sends: what was acknowledged is kept, what failed is not, and order is kept."""

from history.anomaly import Anomaly, Report, Verdict
from history.known import Known, Options
from history.record import UNKNOWN, Op, Outcome, Record


def check(known: Known, options: Options, report: Report) -> None:
    _kept(known, report)
    known.duplicates(options, report)
    _in_order_of_each(known, report)
    _in_order_of_time(known, options, report)


def _kept(known: Known, report: Report) -> None:
    """Every acknowledged value was read, and no other, except sends of unknown outcome."""
    lost: dict[Anomaly, list[Record]] = {}
    for value, send in known.sends.items():
        if value in known.polled:
            if send.outcome == Outcome.FAIL:
                detail = f"{value} of {send.process} failed and was read"
                report.add(Anomaly.G1A, known.key, detail)
            elif send.outcome == Outcome.INFO:
                detail = f"{value} of {send.process}"
                report.add(Anomaly.RECOVERED, known.key, detail, Verdict.REPORT)
        elif send.outcome == Outcome.OK:
            if UNKNOWN < send.offset < known.log_start:
                continue  # removed by retention
            passed = UNKNOWN < send.offset <= known.highest_polled
            detail = f"{value} of {send.process}, acknowledged at offset {send.offset}"
            report.add(Anomaly.LOST_WRITE if passed else Anomaly.UNSEEN, known.key, detail)
            lost.setdefault(_part(known, send), []).append(send)
    for part, sends in sorted(lost.items()):
        offsets = sorted(send.offset for send in sends)
        detail = f"{len(sends)} acknowledged, offsets {offsets[0]} to {offsets[-1]}"
        report.add(part, known.key, detail)
    for value in sorted(known.polled - known.sends.keys()):
        report.add(Anomaly.UNEXPECTED, known.key, f"{value} at offset {known.by_value[value][0]}")


def _part(known: Known, send: Record) -> Anomaly:
    if send.offset == UNKNOWN or send.offset > known.highest_polled:
        return Anomaly.LOST_POSTFIX
    return Anomaly.LOST_PREFIX if send.offset < known.lowest_polled else Anomaly.LOST_MIDDLE


def _in_order_of_each(known: Known, report: Report) -> None:
    """The offsets of one process rise in the order in which it sent."""
    last: dict[str, Record] = {}
    for send in known.in_order:
        if send.outcome != Outcome.OK or send.offset == UNKNOWN:
            continue
        before = last.get(send.process)
        if before is not None and send.offset <= before.offset:
            detail = (
                f"{send.process} sent {before.value} (offset {before.offset}) "
                f"and then {send.value} (offset {send.offset})"
            )
            report.add(Anomaly.NONMONOTONIC_SEND, known.key, detail)
        last[send.process] = send


def _in_order_of_time(known: Known, options: Options, report: Report) -> None:
    """A send gets a higher offset than any known before it began (linearizability)."""
    sends = [one for one in known.in_order if one.outcome == Outcome.OK and one.offset != UNKNOWN]
    facts = [(one.ended_ns, one.offset, str(one.value)) for one in sends if one.ended_ns]
    facts += [
        (one.ended_ns, one.offset, str(one.value))
        for one in known.polls()
        if one.value is not None and one.ended_ns
    ]
    facts += [
        (one.ended_ns, one.offset - 1, f"the end that {one.process} got")
        for one in known.others[Op.LATEST]
        if one.ended_ns and one.offset > 0
    ]
    facts.sort()
    highest, what, position = UNKNOWN, "", 0
    for send in sends:
        while position < len(facts) and facts[position][0] + options.clock_error_ns < send.began_ns:
            if facts[position][1] > highest:
                _, highest, what = facts[position]
            position += 1
        if send.offset <= highest:
            detail = (
                f"{send.value} got offset {send.offset}, and {what} at offset {highest} was known "
                "before it was sent"
            )
            report.add(Anomaly.REALTIME_ORDER, known.key, detail)
