"""The checker for histories: could logs have shown this to the clients?

The anomalies are those of `jepsen.tests.kafka` (Jepsen's Redpanda and Kafka analyses) and a few
related ones: no model of the system, only rules that hold for every key that is one log. A
`drained` reader stands for Jepsen's final phase: it must have seen every message below its
position, so a value lost from one replica's log is found even if another reader saw it.

Not covered are the anomalies of transactions: precommitted reads, and Elle's cycles (G0, G1c).

One pass collects the records by key; then every key is checked by itself, since no order holds
between logs. `sends`, `readers` and `places` hold the rules.
"""

from collections import defaultdict
from collections.abc import Iterable

from history import places, readers, sends
from history.anomaly import Anomaly, Report, Verdict
from history.known import Known, Options
from history.record import NO_KEY, Key, Op, Outcome, Record, settle
from history.trouble import Trouble

_OF_READERS = frozenset({Op.POLL, Op.ASSIGN, Op.SUBSCRIBE, Op.DRAINED})


def check(history: Iterable[Record], options: Options | None = None) -> Report:
    """Look for every anomaly; the report is clean if and only if nothing bad was found."""
    options = options or Options()
    report = Report()
    by_key: dict[Key, list[Record]] = defaultdict(list)
    faults: list[Record] = []
    for record in settle(history):
        report.records += 1
        if record.op in (Op.FAULT, Op.HEAL):
            faults.append(record)
        elif record.op in (Op.SEND, Op.COMMIT) or record.outcome == Outcome.OK:
            by_key[record.key].append(record)
    troubled = Trouble.of(faults)
    every_send: list[Record] = []
    for key, records in sorted(by_key.items()):
        known = _know(key, records, report)
        sends.check(known, options, report)
        places.check(known, options, report)
        readers.check(known, options, report)
        _lag(known, options, troubled, report)
        every_send += known.in_order
    _progress(every_send, troubled, report)
    return report


def _know(key: Key, records: list[Record], report: Report) -> Known:
    """Sort the records of one key by the rules that need them; put the values at their offsets."""
    known = Known(key)
    for record in records:
        if record.op == Op.SEND:
            known.in_order.append(record)
            report.sent[record.outcome] += 1
            known.place_send(record, report)
        elif record.op in _OF_READERS:
            known.reads[record.process].append(record)
            if record.op == Op.POLL and record.value is not None:
                report.polled += 1
                known.place_poll(record, report)
        else:
            known.others[record.op].append(record)
    known.finish()
    return known


# -- faults, and what happens during them ---------------------------------------------------------


def _progress(every_send: list[Record], trouble: Trouble, report: Report) -> None:
    """After the last healing, every process that still sends gets something acknowledged."""
    healed_ns = trouble.healed_ns()
    tried: dict[str, Record] = {}
    served: set[str] = set()
    for send in every_send:
        done = send.outcome == Outcome.OK
        if done and trouble.at(send.ended_ns):
            report.acknowledged_during_faults += 1
        if healed_ns and send.began_ns > healed_ns:
            tried.setdefault(send.process, send)
        if done and send.ended_ns > healed_ns:
            served.add(send.process)
    for process in sorted(tried.keys() - served):
        detail = f"{process} sent {tried[process].value} and more after it"
        report.add(Anomaly.STUCK, NO_KEY, detail)


def _lag(known: Known, options: Options, trouble: Trouble, report: Report) -> None:
    """How far polls were behind: for how long had something been known that they did not get?"""
    worst: tuple[int, str] = 0, ""
    for poll in known.last_of_each_poll():
        reached = poll.offset if poll.value is not None else poll.offset - 1
        since_ns = known.known_above(reached)
        if since_ns is None or not poll.began_ns or trouble.at(poll.began_ns):
            continue
        lag_ns = poll.began_ns - max(since_ns, trouble.healed_ns(poll.began_ns))
        if lag_ns > worst[0]:
            worst = lag_ns, f"{poll.process} at offset {reached}: {lag_ns / 1e6:,.0f} ms behind"
    report.worst_lag_ns = max(report.worst_lag_ns, worst[0])
    if worst[0]:
        limit_ns = options.lag_ns_max
        bad = limit_ns is not None and worst[0] > limit_ns
        verdict = Verdict.BAD if bad else Verdict.REPORT
        report.add(Anomaly.REALTIME_LAG, known.key, worst[1], verdict)
