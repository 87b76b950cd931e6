"""Rows go to the same partitions as with every Kafka client."""

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_evenkeel.errors import RowError
from pyspark_evenkeel.write.partitioning import LONG_KEY_BYTES, Router, hashes, task_of
from wire.cluster_view import TopicPartition
from wire.murmur import murmur2, partition_of_key

COUNTS = {"orders": 6, "events": 3}


def router(keyless: int = 0) -> Router:
    return Router(partitions_of=COUNTS.__getitem__, keyless=keyless)


def binary(*values: bytes | None) -> object:
    return pa.array(values, pa.binary())


@settings(max_examples=100, deadline=None, database=None)
@given(keys=st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_hashes_are_kafkas(keys: list[bytes]) -> None:
    column = binary(b"before", *keys, b"after").slice(1, len(keys))
    assert hashes(column).tolist() == [murmur2(one) for one in keys]


def test_long_keys_and_short_ones_together() -> None:
    dice = random.Random(1)
    sizes = [0, 1, 3, 4, LONG_KEY_BYTES - 1, LONG_KEY_BYTES, LONG_KEY_BYTES + 1, 5 * LONG_KEY_BYTES]
    keys = [dice.randbytes(size) for size in sizes]
    assert hashes(binary(*keys)).tolist() == [murmur2(one) for one in keys]


def test_keys_stay_together_and_rows_without_one_too() -> None:
    """The partition that was asked for, else the key's, else the one of this task."""
    one = router(keyless=8)
    keys = [b"a", None, b"b", b"a", None, None]
    asked = pa.array([None, None, None, 5, 0, None], pa.int32())
    found = one.route("orders", asked, binary(*keys))
    expected = [partition_of_key(b"a", 6), 8 % 6, partition_of_key(b"b", 6), 5, 0, 8 % 6]
    assert [one.place(number) for number in found.tolist()] == [
        TopicPartition("orders", partition) for partition in expected
    ]


@pytest.mark.parametrize("keyless", [0, 1, 7])
def test_without_keys_one_partition_gets_all(keyless: int) -> None:
    found = router(keyless).route("orders", None, pa.nulls(5, pa.binary()))
    assert found.tolist() == [keyless % 6] * 5


def test_each_row_to_the_topic_it_names() -> None:
    one = router(keyless=4)
    topics = pa.array(["events", "orders", "events", "events"])
    found = one.route(
        topics, pa.array([None, None, 2, None], pa.int32()), binary(b"k", b"k", b"k", None)
    )
    assert [one.place(number) for number in found.tolist()] == [
        TopicPartition("events", partition_of_key(b"k", 3)),
        TopicPartition("orders", partition_of_key(b"k", 6)),
        TopicPartition("events", 2),
        TopicPartition("events", 1),
    ]
    again = one.route("orders", None, binary(b"k")).tolist()
    assert one.place(again[0]) == TopicPartition("orders", partition_of_key(b"k", 6))


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_does_not_exist_is_named(partition: int) -> None:
    topics = pa.array(["orders", "events"])
    with pytest.raises(RowError, match=f"partition {partition} of topic 'events'.*3 partitions"):
        router().route(topics, pa.array([3, partition], pa.int32()), binary(b"k", b"k"))


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(RowError, match="no topic"):
        router().route(pa.array(["orders", None]), None, binary(b"k", b"k"))


def test_destinations_are_spread_evenly_over_tasks() -> None:
    """With as many tasks as partitions each gets one. All tasks compute the same answer."""
    for topic, count in COUNTS.items():
        places = [TopicPartition(topic, number) for number in range(count)]
        assert sorted(task_of(place, count) for place in places) == list(range(count))
        two = [task_of(place, 2) for place in places]
        assert all(a != b for a, b in pairwise(two))
