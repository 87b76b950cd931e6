"""The rules for what is told about a log without reading it: its ends, positions, hashes, masters.

Each is a register. What one reader was told, nobody who asks later may find undone: a master that
answers after its lease has ended is caught here, though every message it serves is right.
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
    """The end of a log is above everything that was known before somebody asked for it."""
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
                f"{end.process} was told that the end is {end.offset}, and {value} at offset "
                f"{highest} was known before it asked"
            )
            report.add(Anomaly.STALE_OFFSETS, known.key, detail)


def _never_back(known: Known, op: Op, options: Options, report: Report) -> None:
    """Of two answers, of which one was there before the other was asked for."""
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
                f"{op}: {one.process} was told {one.offset}, and before it asked "
                f"{highest.process} {highest.offset}"
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
    """What a group is told was committed by it, and not yet overwritten when it asked.

    A group may commit a lower offset than before: that is its own business. So the rule is not that
    offsets rise, but that of two commits of which one ended before the other began, the first is
    never read once the second is acknowledged.
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
            told = "nothing" if read.offset == UNKNOWN else f"offset {read.offset}"
            detail = f"{read.process} of group {group} was told {told}"
            report.add(Anomaly.COMMITTED_BACK, known.key, detail)


def _later(ended_ns: int, error_ns: int, than_ns: int) -> bool:
    return not ended_ns or ended_ns + error_ns >= than_ns


def _agree(known: Known, report: Report) -> None:
    """The hash over a replica's log up to a slot is the same wherever it is taken."""
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
    """An epoch begins with the lease entry that names its holder: it has one."""
    for epoch, nodes in sorted(_by_offset(known.others[Op.MASTER]).items()):
        if len(nodes) > 1:
            detail = f"epoch {epoch}: {', '.join(sorted(nodes))}"
            report.add(Anomaly.TWO_MASTERS, known.key, detail)


def _by_offset(records: Iterable[Record]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for one in records:
        found[one.offset].add(one.process)
    return found
