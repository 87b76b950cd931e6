"""Columns of a DataFrame: which ones and which types are accepted, and what is said of others."""

import random
from typing import Any

import pyarrow as pa
import pytest

from pyspark_evenkeel.errors import ConfigurationError, RowError
from pyspark_evenkeel.write.encoding import check_columns, in_order, part_of

VALUE = {"value": "string"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    "types",
    [
        {"value": "binary"},
        {"value": "varchar(9)", "key": "char(3)"},
        {"value": "string collate UNICODE_CI"},
        VALUE | {"key": "binary", "partition": "int", "topic": "string", "timestamp": "timestamp"},
        VALUE | {"headers": "array<struct<key:string,value:binary>>"},
        VALUE | {"offset": "bigint", "whatever": "struct<a:int>"},
    ],
)
def test_what_can_be_written(types: dict[str, str]) -> None:
    check_columns(types, has_topic=True)


@pytest.mark.parametrize(
    ("types", "complaint"),
    [
        ({}, "no column 'value'.*there are none"),
        ({"Value": "string", "key": "string"}, "no column 'value'.*rename 'Value'"),
        ({"value": "int"}, "'value' is of type int: binary or string is needed.*to_json"),
        ({"value": "array<string>"}, "'value' is of type array<string>"),
        (VALUE | {"key": "bigint"}, "'key' is of type bigint.*cast it"),
        (VALUE | {"partition": "bigint"}, "'partition' is of type bigint: int is needed"),
        (VALUE | {"topic": "binary"}, "'topic' is of type binary: string is needed"),
        (VALUE | {"headers": "map<string,string>"}, "array<struct<key:string,value:binary>>"),
        (VALUE | {"timestamp": "timestamp_ntz"}, "timestamp is needed"),
    ],
)
def test_what_cannot_be_written_is_named(types: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        check_columns(types, has_topic=True)


def test_without_option_topic_rows_need_one() -> None:
    check_columns(VALUE | {"topic": "string"}, has_topic=False)
    with pytest.raises(ConfigurationError, match=r"no column 'topic'.*or set option topic"):
        check_columns(VALUE, has_topic=False)


def test_a_column_to_order_by_has_to_be_there() -> None:
    check_columns(VALUE | {"at": "bigint"}, has_topic=True, order_by=["at"])
    with pytest.raises(ConfigurationError, match="no column 'at' to order by"):
        check_columns(VALUE, has_topic=True, order_by=["at"])


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(["v"]), **columns})


def test_types_of_long_columns_are_taken_too() -> None:
    """As Spark makes them with spark.sql.execution.arrow.useLargeVarTypes."""
    long = batch(key=pa.array([b"k"], pa.large_binary()), topic=pa.array(["t"], pa.large_string()))
    part = part_of(long, 0)
    assert (part.rows.keys.to_pylist(), part.topics.to_pylist()) == ([b"k"], ["t"])
    assert {part.rows.keys.type, part.rows.values.type} == {pa.binary()}


@pytest.mark.parametrize("headers", [None, [], [None], [{"key": None, "value": b"x"}]])
def test_headers_have_names(headers: Any) -> None:
    given = batch(headers=pa.array([headers], HEADERS))
    if headers:
        with pytest.raises(RowError, match="header without a name"):
            part_of(given, 0)
    else:
        assert part_of(given, 0).rows.headers is None


def test_times_are_milliseconds_since_1970() -> None:
    at = pa.array([1_999, None, 0], pa.timestamp("us", "UTC"))
    three = pa.RecordBatch.from_pydict({"value": pa.array(["a", "b", "c"]), "timestamp": at})
    assert part_of(three, 77).rows.times_ms.tolist() == [1, 77, 0]
    with pytest.raises(RowError, match=r"before 1970.*-1 ms"):
        part_of(batch(timestamp=pa.array([-1], pa.timestamp("us", "UTC"))), 0)


# -- in order -------------------------------------------------------------------------------------


def rows(count: int) -> Any:
    numbers = random.Random(count).sample(range(count), count)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d" % n for n in numbers]),
            "at": pa.array([{"p": n % 3, "o": n // 3} for n in numbers]),
        }
    )


def test_rows_come_in_order_whatever_batches_they_came_in() -> None:
    """A struct is ordered by its first field first."""
    table = rows(100)
    for cut in (0, 1, 50, 100):
        parts = [table.slice(0, cut), table.slice(cut)]
        found = pa.Table.from_batches(in_order(parts, ["at"], 1 << 20))
        expected = sorted(range(100), key=lambda n: (n % 3, n // 3))
        assert found["value"].to_pylist() == [b"%d" % n for n in expected]
    assert not list(in_order([], ["at"], 1))


def test_what_is_too_much_to_sort_is_refused() -> None:
    table = rows(100)
    with pytest.raises(RowError, match=r"more than 1,000 bytes.*orderBy.*bufferBytes"):
        list(in_order([table], ["at"], 1_000))


def test_what_has_no_order_is_refused() -> None:
    table = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "at": pa.array([[1, 2]])})
    with pytest.raises(RowError, match="cannot be sorted"):
        list(in_order([table], ["at"], 1 << 20))
