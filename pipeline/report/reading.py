"""Sample files as DataFrames, and a clear refusal of other files."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pipeline.report.files import InputError, Inputs
from pipeline.report.schema import ddl
from pipeline.report.transform import broken_rules, is_sound, rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", inputs: Inputs, kind: str) -> "DataFrame | None":
    """All rows of a kind, with `_corrupt`: the text of a line that is not a valid row. None: no
    files.

    Raises:
        InputError: if a file's columns have other types.
    """
    found: DataFrame | None = None
    for form, paths in inputs.of(kind):
        rows = _json(spark, kind, paths) if form == "json" else _parquet(spark, kind, paths)
        found = rows if found is None else found.unionByName(rows)
    return found


def _json(spark: "SparkSession", kind: str, paths: Sequence[str]) -> "DataFrame":
    reader = spark.read.schema(f"{ddl(kind)}, `_corrupt` string")
    return reader.json(list(paths), columnNameOfCorruptRecord="_corrupt")


def _parquet(spark: "SparkSession", kind: str, paths: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    wanted = StructType.fromDDL(ddl(kind))
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    types = {field.name: field.dataType.simpleString() for field in rows.schema}
    needed = {field.name: field.dataType.simpleString() for field in wanted}
    wrong = [
        f"{name} is {types.get(name, 'missing')} instead of {type_name}"
        for name, type_name in needed.items()
        if types.get(name) != type_name
    ]
    if wrong:
        raise InputError(f"{', '.join(paths[:3])} are no {kind}: {'; '.join(wrong)}")
    return rows.select(*wanted.names, F.lit(None).cast("string").alias("_corrupt"))


def chosen(rows: "DataFrame", runs: Iterable[str], commits: Iterable[str]) -> "DataFrame":
    """The rows whose run, and commit, begins with one of these; if none are given, all."""
    from pyspark.sql import functions as F

    for column, starts in (("run", list(runs)), ("commit", list(commits))):
        if starts:
            matches = F.lit(False)
            for one in starts:
                matches = matches | F.col(column).startswith(one)
            rows = rows.where(
                matches | F.col(column).isNull()
            )  # unsound rows are told all the same
    return rows


def refuse(rows: "DataFrame", kind: str) -> None:
    """Report what is wrong with rows, some of which are unsound.

    Raises:
        InputError: always; with the rules that are broken, how often, and one such row.
    """
    from pyspark.sql import functions as F

    counts = broken_rules(rows, kind).first()
    names = list(rules(kind))
    told = [
        f"{counts[n]:,} rows break the rule: {names[n]}" for n in range(len(names)) if counts[n]
    ]
    example = rows.where(~is_sound(kind)).select(F.to_json(F.struct("*"))).first()
    raise InputError(f"these are no {kind}: {'; '.join(told)}. One of them: {example[0]}")
