"""The rows of a history on Spark, and the questions that every rule asks of a row.

A row is a record (`history.record.Record`) and `seq`, which orders it: the number of its file, then
that of its line. Operations and outcomes are small numbers, because a rule that is a window
compares them ten times per row. Only `value` may be null.
"""

from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as F

from history.record import UNKNOWN, Op, Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = ("topic", "partition")
"""The columns that name a log."""
SCHEMA: Final = (
    "seq long, op tinyint, process string, topic string, partition long, value string, "
    "offset long, outcome tinyint, began_ns long, ended_ns long"
)
COLUMNS: Final = tuple(field.split()[0] for field in SCHEMA.split(", "))
OPS: Final = tuple(Op)
OUTCOMES: Final = tuple(Outcome)
LINE_BITS: Final = 40
"""Bits for the number of a line in its file; the number of the file is above them."""
BROADCAST_ROWS_MAX: Final = 500_000
"""A table of at most this many rows is broadcast to all tasks that look something up in it."""
LATER: Final = 1 << 60
"""Added to the seq of operations that never ended: they come after all that have an outcome."""
TIME_MAX: Final = 1 << 61
"""Times and offsets are within this distance of 0, so that no sum or difference overflows."""


def op_number(op: Op) -> int:
    return OPS.index(op)


def outcome_number(outcome: Outcome) -> int:
    return OUTCOMES.index(outcome)


def is_op(*ops: Op) -> "Column":
    return F.col("op").isin(*map(op_number, ops))


def outcome_is(*outcomes: Outcome) -> "Column":
    return F.col("outcome").isin(*map(outcome_number, outcomes))


def placed() -> "Column":
    """Whether the row says for certain what is at an offset."""
    sent = is_op(Op.SEND) & (F.col("offset") != UNKNOWN)
    read = is_op(Op.POLL) & F.col("value").isNotNull()
    return outcome_is(Outcome.OK) & (sent | read)


def count_if(condition: "Column") -> "Column":
    return F.count(F.when(condition, 1))


def nonzero(name: str) -> "Column":
    """A time, or null if none was recorded."""
    return F.when(F.col(name) != 0, F.col(name))


def numbered(kinds: tuple[Op, ...] | tuple[Outcome, ...], name: "Column") -> "Column":
    """The number of the kind that a column of strings names; null if it names none."""
    number = F.lit(None)
    for place, kind in enumerate(kinds):
        number = F.when(name == str(kind), place).otherwise(number)
    return number.cast("tinyint")


def of_op(rows: "DataFrame", *ops: Op) -> "DataFrame":
    """The rows of these operations that succeeded."""
    return rows.where(is_op(*ops) & outcome_is(Outcome.OK))


def computed(found: "DataFrame") -> "DataFrame":
    """The table, computed now and once, without its plan: Spark takes longer to analyse a plan in
    which one result is used by many others than to read the data."""
    return found.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)


def to_join_with(found: "DataFrame") -> "DataFrame":
    """A table of mostly rare rows, computed, and broadcast if it is small."""
    kept = computed(found)
    return F.broadcast(kept) if kept.count() <= BROADCAST_ROWS_MAX else kept
