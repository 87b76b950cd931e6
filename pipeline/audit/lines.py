"""Lines of text -> columns, as strictly as `history.jsonl`, without running Python for each line.

Spark's own parser is lenient: it takes `"7"` for a 7 and ignores unknown fields. So Spark parses a
line only if a regular expression has matched it as an object of the known fields with values of
their types, and if the result makes sense (`history.record.problem`, as a condition). Every other
line is *strange*: it is kept as it is and judged by `history.jsonl.record_of`. Most strange lines
are not records; a few are, in ways that only Python's parser reads.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from history.jsonl import LINE_BYTES_MAX
from history.record import NEEDS, NO_KEY, UNKNOWN, Op, Outcome
from pipeline.audit.columns import OPS, OUTCOMES, TIME_MAX, is_op, numbered, outcome_is

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ESCAPED_BYTES_MAX: Final = 64 * 1024
"""Of a line with a backslash: a longer one is strange, because the expression recurses on it."""

_BLANK: Final = r"[ \t\r]*+"
_NUMBER: Final = r"(?:-?(?:[1-8][0-9]{18}|[1-9][0-9]{0,17}|0))"  # longest first: no backtracking
_PLAIN: Final = r'"[^"\\\x00-\x1f]*+"'
_ESCAPE: Final = (
    r'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_ESCAPED: Final = rf'"[^"\\\x00-\x1f]*+(?:{_ESCAPE}[^"\\\x00-\x1f]*+)*+"'
_AS_TEXT: Final = (
    "op string, process string, key array<string>, value string, offset long, outcome string, "
    "began_ns long, ended_ns long"
)


def _a_record(text: str) -> str:
    """The expression for an object with a record's fields, in which strings match `text`."""
    colon = f"{_BLANK}:{_BLANK}"
    key = rf"\[{_BLANK}{text}{_BLANK},{_BLANK}{_NUMBER}{_BLANK}\]"
    fields = [
        rf'(?:op|process|outcome)"{colon}{text}',
        rf'value"{colon}(?:{text}|null)',
        rf'(?:offset|began_ns|ended_ns)"{colon}{_NUMBER}',
        rf'key"{colon}(?:{key}|null)',
    ]
    field = f'"(?>{"|".join(fields)})'
    comma = f"{_BLANK},{_BLANK}"
    return rf"^{_BLANK}\{{{_BLANK}{field}(?:{comma}{field})*+{_BLANK}\}}{_BLANK}$"


def parsed(lines: "DataFrame") -> "DataFrame":
    """From a column `line` (others are kept): a record's columns, and `strange`."""
    line, size = F.col("line"), F.octet_length("line")
    escaped = (F.instr("line", "\\") > 0) & (size < ESCAPED_BYTES_MAX)
    looks = (
        F.is_valid_utf8(line)
        & (size < LINE_BYTES_MAX)
        & (line.rlike(_a_record(_PLAIN)) | (escaped & line.rlike(_a_record(_ESCAPED))))
    )
    others = [name for name in lines.columns if name != "line"]
    found = lines.withColumn("found", F.from_json(F.when(looks, line), _AS_TEXT))
    written = found.select(
        *others,
        F.substring(line.cast("binary"), 1, LINE_BYTES_MAX + 1).alias("raw"),
        "found.op",
        "found.process",
        F.col("found.key")[0].alias("topic"),
        F.col("found.key")[1].try_cast("long").alias("partition"),
        "found.value",
        "found.offset",
        "found.outcome",
        "found.began_ns",
        "found.ended_ns",
    )
    return completed(written)


def completed(written: "DataFrame") -> "DataFrame":
    """Missing values get their defaults; `raw` becomes `strange` if a row makes no sense.

    The columns are those of a record, null where nothing was written, in the types of the format.
    """
    mine = {"op", "outcome", "topic", "partition", "offset", "began_ns", "ended_ns"}
    half_a_key = F.col("topic").isNull() != F.col("partition").isNull()
    whole = written.select(
        *[name for name in written.columns if name not in mine],
        numbered(OPS, F.col("op")).alias("op"),
        numbered(OUTCOMES, F.coalesce("outcome", F.lit(str(Outcome.OK)))).alias("outcome"),
        F.when(half_a_key, None).otherwise(F.coalesce("topic", F.lit(NO_KEY.topic))).alias("topic"),
        _or("partition", NO_KEY.partition),
        _or("offset", UNKNOWN),
        _or("began_ns", 0),
        _or("ended_ns", 0),
    )
    strange = F.when(~F.coalesce(_makes_sense(), F.lit(False)), F.col("raw"))
    return whole.withColumn("strange", strange).drop("raw")


def _or(name: str, default: int) -> "Column":
    return F.coalesce(F.col(name).cast("long"), F.lit(default)).alias(name)


def _makes_sense() -> "Column":
    """`history.record.problem` on columns; and no number is too large to compute with."""
    no_key = (F.col("topic") == NO_KEY.topic) & (F.col("partition") == NO_KEY.partition)
    with_value = [op for op, needs in NEEDS.items() if needs.value]
    with_offset = [op for op, needs in NEEDS.items() if needs.offset]
    offset, began_ns, ended_ns = F.col("offset"), F.col("began_ns"), F.col("ended_ns")
    return (
        F.col("op").isNotNull()
        & F.col("outcome").isNotNull()
        & F.col("process").isNotNull()
        & F.col("topic").isNotNull()
        & (is_op(Op.FAULT, Op.HEAL) | ~no_key)
        & (~is_op(*with_value) | F.col("value").isNotNull())
        & offset.between(UNKNOWN, TIME_MAX)
        & ~(is_op(*with_offset) & outcome_is(Outcome.OK) & (offset == UNKNOWN))
        & began_ns.between(-TIME_MAX, TIME_MAX)
        & ended_ns.between(-TIME_MAX, TIME_MAX)
        & ((ended_ns == 0) | (ended_ns >= began_ns))
    )
