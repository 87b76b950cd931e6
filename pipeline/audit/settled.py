"""What a history contains, and every operation once: `history.record.settle`, on Spark.

Most records of a history stand on their own. Only a name (operation, process, key, value) that was
begun, and for which no later record has an outcome, adds a record: unknown.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql import functions as F

from history.jsonl import HistoryError
from history.record import UNKNOWN, Key, Op, Outcome, Record, settle
from history.trouble import Trouble
from pipeline.audit.columns import (
    COLUMNS,
    KEY,
    LATER,
    OPS,
    OUTCOMES,
    computed,
    is_op,
    of_op,
    outcome_is,
    outcome_number,
)
from pipeline.audit.names import Names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARKS_MAX: Final = 100_000
"""Records of faults and heals: they are collected in one place."""
_BULK: Final = frozenset({Op.SEND, Op.POLL})


@attrs.frozen(kw_only=True)
class Settled:
    """A history whose operations have their outcomes, and what it contains."""

    rows: "DataFrame"
    """Records with an outcome of their own."""
    rare: "DataFrame"
    """Those of them that are neither sends nor polls, computed: a small part of most histories."""
    pending: "DataFrame | None"
    """Operations that never ended, as unknown; None if none was begun."""
    profile: "DataFrame"
    """Per key, process, operation and outcome: `records`; those with a value (`messages`), their
    lowest and highest offset (`lowest`, `highest`); the highest of all (`farthest`)."""
    names: Names
    counts: Counter[tuple[Op, Outcome]]
    """Without what is pending."""
    unfinished: Counter[Op]
    """Pending operations, by kind."""
    trouble: Trouble

    def has(self, *ops: Op) -> bool:
        """Whether any of these operations succeeded."""
        return any(self.counts[op, Outcome.OK] for op in ops)

    def of_op(self, *ops: Op) -> "DataFrame":
        """The rows of these operations that succeeded."""
        return of_op(self.rare if _BULK.isdisjoint(ops) else self.rows, *ops)

    def every(self, op: Op) -> "DataFrame":
        """All rows of the operation, whatever its outcome."""
        found = (self.rows if op in _BULK else self.rare).where(is_op(op))
        if self.pending is None or not self.unfinished[op]:
            return found
        return found.unionByName(self.pending.where(is_op(op)))

    def sent(self) -> dict[Outcome, int]:
        found = {outcome: self.counts[Op.SEND, outcome] for outcome in OUTCOMES}
        found[Outcome.INFO] += self.unfinished[Op.SEND]
        return found

    @property
    def records(self) -> int:
        return self.counts.total() + self.unfinished.total()


def settled(history: "DataFrame", names: str) -> Settled:
    """Settle a history.

    Raises:
        HistoryError: it has nothing (in the files of these names) that can be judged.
    """
    profile = computed(
        history.groupBy(*KEY, "process", "op", "outcome").agg(
            F.count("*").alias("records"),
            F.count("value").alias("messages"),
            F.min(F.when(F.col("value").isNotNull(), F.col("offset"))).alias("lowest"),
            F.max(F.when(F.col("value").isNotNull(), F.col("offset"))).alias("highest"),
            F.max("offset").alias("farthest"),
        )
    )
    kinds = profile.groupBy("op", "outcome").agg(F.sum("records")).collect()
    counts = Counter({(OPS[op], OUTCOMES[outcome]): records for op, outcome, records in kinds})
    if all(op in (Op.FAULT, Op.HEAL) for op, _ in counts):
        raise HistoryError(f"nothing to judge in {names}")
    begun = sorted({op for op, outcome in counts if outcome == Outcome.INVOKE})
    pending = computed(_pending(history, begun)) if begun else None
    unfinished: Counter[Op] = Counter()
    if pending is not None:
        unfinished.update({OPS[op]: n for op, n in pending.groupBy("op").count().collect()})
    marks = sum(records for (op, _), records in counts.items() if op in (Op.FAULT, Op.HEAL))
    rows = history.where(~outcome_is(Outcome.INVOKE)) if begun else history
    return Settled(
        rows=rows,
        rare=computed(rows.where(~is_op(*_BULK))),
        pending=pending,
        profile=profile.where(~outcome_is(Outcome.INVOKE)),
        names=Names.of(profile),
        counts=Counter({kind: n for kind, n in counts.items() if kind[1] != Outcome.INVOKE}),
        unfinished=unfinished,
        trouble=_trouble(history, marks),
    )


def _pending(history: "DataFrame", begun: list[Op]) -> "DataFrame":
    """The last record of each name that was begun, if that record is the beginning."""
    last = (
        history.where(is_op(*begun))
        .groupBy("op", "process", *KEY, "value")
        .agg(
            F.max(F.when(outcome_is(Outcome.INVOKE), F.col("seq"))).alias("seq"),
            F.max(F.when(~outcome_is(Outcome.INVOKE), F.col("seq"))).alias("ended"),
        )
        .where(F.col("seq") > F.coalesce("ended", F.lit(-1)))
        .select("seq")
    )
    info = F.lit(outcome_number(Outcome.INFO)).cast("tinyint")
    never = F.lit(0).cast("long")
    return (
        history.where(is_op(*begun) & outcome_is(Outcome.INVOKE))
        .join(last, "seq")
        .withColumns({"outcome": info, "ended_ns": never, "seq": F.col("seq") + F.lit(LATER)})
        .select(*COLUMNS)
    )


def _trouble(history: "DataFrame", marks: int) -> Trouble:
    """When the cluster was hurt, and healed.

    Raises:
        HistoryError: there are more than MARKS_MAX marks.
    """
    if marks > MARKS_MAX:
        raise HistoryError(f"{marks:,} faults and heals; an audit takes {MARKS_MAX:,}")
    if not marks:
        return Trouble(())
    rows = history.where(is_op(Op.FAULT, Op.HEAL)).orderBy("seq")
    columns = ("op", "process", *KEY, "value", "outcome", "began_ns")
    found = [
        Record(OPS[op], process, Key(topic, part), value, UNKNOWN, OUTCOMES[outcome], began_ns)
        for op, process, topic, part, value, outcome, began_ns in rows.select(*columns).collect()
    ]
    return Trouble.of(settle(found))


def ends_of_keys(profile: "DataFrame") -> "DataFrame":
    """Per key: `log_start` (records below it were removed by retention), what was polled of it, and
    the highest offset known to exist (`top`)."""
    ok = outcome_is(Outcome.OK)
    read, told = is_op(Op.POLL) & ok, is_op(Op.EARLIEST) & ok
    placed = is_op(Op.POLL, Op.SEND) & ok
    return profile.groupBy(*KEY).agg(
        F.coalesce(F.max(F.when(told, F.col("farthest"))), F.lit(0)).alias("log_start"),
        F.coalesce(F.min(F.when(read, F.col("lowest"))), F.lit(UNKNOWN)).alias("lowest_polled"),
        F.coalesce(F.max(F.when(read, F.col("highest"))), F.lit(UNKNOWN)).alias("highest_polled"),
        F.coalesce(F.max(F.when(placed, F.col("highest"))), F.lit(UNKNOWN)).alias("top"),
    )
