"""The rules for what clients learn about a log without reading it: its ends, committed offsets,
hashes, masters.

Each is a register. If one reader has seen a value, a later one must not see an older value. This
catches a master that answers after its lease has ended, even though every message it serves is
right.
"""

from collections import defaultdict
from collections.abc import Iterable

from history.anomaly import Anomaly, Report
from history.known import Known, Options
from history.record import UNKNOWN, Op, Outcome, Record


def check(known: Known, options: Options, report: Report) -> None:
    _stale_ends(known, options, report)
    for op in (Op.EARLIEST, Op.LATEST):
        _never_back(known, op, options, report)
    _commits(known, options, report)
    _agree(known, report)
    _one_master(known, report)


def _stale_ends(known: Known, options: Options, report: Report) -> None:
    """The end of a log is above everything that was known before it was asked for."""
    facts = [
        (one.ended_ns, one.offset, one.value)
        for one in (*known.in_order, *known.polls())
        if one.outcome == Outcome.OK and one.value is not None
        if one.offset != UNKNOWN and one.ended_ns
    ]
    facts.sort(key=lambda one: one[0])
    position, highest, value = 0, UNKNOWN, ""
    for end in sorted(known.others[Op.LATEST], key=lambda one: one.began_ns):
        while position < len(facts) and facts[position][0] + options.clock_error_ns < end.began_ns:
            if facts[position][1] > highest:
                _, highest, value = facts[position]
            position += 1
        if end.offset <= highest:
            detail = (
                f"{end.process} got {end.offset} as the end, and {value} at offset {highest} "
                "was known before it asked"
            )
            report.add(Anomaly.STALE_OFFSETS, known.key, detail)


def _never_back(known: Known, op: Op, options: Options, report: Report) -> None:
    """If one answer arrived before another was asked for, the later one is not lower."""
    asked = sorted(known.others[op], key=lambda one: one.began_ns)
    answered = sorted((one for one in asked if one.ended_ns), key=lambda one: one.ended_ns)
    position = 0
    highest: Record | None = None
    for one in asked:
        while (
            position < len(answered)
            and answered[position].ended_ns + options.clock_error_ns < one.began_ns
        ):
            if highest is None or answered[position].offset > highest.offset:
                highest = answered[position]
            position += 1
        if highest is not None and one.offset < highest.offset:
            detail = (
                f"{op}: {one.process} got {one.offset}, and before it asked "
                f"{highest.process} had got {highest.offset}"
            )
            report.add(Anomaly.OFFSETS_BACK, known.key, detail)


def _commits(known: Known, options: Options, report: Report) -> None:
    groups = {str(one.value) for one in known.others[Op.COMMITTED]}
    for group in sorted(groups):
        written = [one for one in known.others[Op.COMMIT] if one.value == group]
        asked = [one for one in known.others[Op.COMMITTED] if one.value == group]
        _committed(known, group, written, asked, options, report)


def _committed(
    known: Known,
    group: str,
    written: list[Record],
    asked: list[Record],
    options: Options,
    report: Report,
) -> None:
    """A consumer group reads an offset that it committed and had not overwritten when it asked.

    A group may commit a lower offset than before, so offsets need not rise. The rule is: if one
    commit ended before another began, the first is never read once the second is acknowledged.
    """
    possible: dict[int, list[Record]] = defaultdict(list)
    for commit in written:
        if commit.outcome != Outcome.FAIL:
            possible[commit.offset].append(commit)
    settled = sorted(
        (one for one in written if one.outcome == Outcome.OK and one.ended_ns),
        key=lambda one: one.ended_ns,
    )
    position, newest_began = 0, -1
    error = options.clock_error_ns
    for read in sorted(asked, key=lambda one: one.began_ns):
        while position < len(settled) and settled[position].ended_ns + error < read.began_ns:
            newest_began = max(newest_began, settled[position].began_ns)
            position += 1
        if read.offset == UNKNOWN:
            wrong = newest_began >= 0
        else:
            wrong = not any(
                (not read.ended_ns or one.began_ns <= read.ended_ns + error)
                and (one.outcome != Outcome.OK or _later(one.ended_ns, error, newest_began))
                for one in possible[read.offset]
            )
        if wrong:
            answer = "no offset" if read.offset == UNKNOWN else f"offset {read.offset}"
            detail = f"{read.process} of consumer group {group} got {answer}"
            report.add(Anomaly.COMMITTED_BACK, known.key, detail)


def _later(ended_ns: int, error_ns: int, than_ns: int) -> bool:
    return not ended_ns or ended_ns + error_ns >= than_ns


def _agree(known: Known, report: Report) -> None:
    """The hash over the log up to a slot is the same on every replica."""
    first: dict[int, Record] = {}
    for one in known.others[Op.CHAIN]:
        other = first.setdefault(one.offset, one)
        if other.value != one.value:
            detail = (
                f"up to slot {one.offset}: {other.value} on {other.process}, "
                f"{one.value} on {one.process}"
            )
            report.add(Anomaly.DIVERGED, known.key, detail)


def _one_master(known: Known, report: Report) -> None:
    """An epoch has one master: it begins with the lease entry that names its holder."""
    for epoch, nodes in sorted(_by_offset(known.others[Op.MASTER]).items()):
        if len(nodes) > 1:
            detail = f"epoch {epoch}: {', '.join(sorted(nodes))}"
            report.add(Anomaly.TWO_MASTERS, known.key, detail)


def _by_offset(records: Iterable[Record]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for one in records:
        found[one.offset].add(one.process)
    return found
