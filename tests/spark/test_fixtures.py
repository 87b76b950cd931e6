"""The fixtures themselves: a session that computes, a bus and a foreign broker that keep rows."""

import os
from typing import Any

import pytest

from tests.spark.bus import Bus, OurBus


@pytest.mark.cluster
def test_a_bus_keeps_rows_while_masters_move(bus: OurBus) -> None:
    topic = bus.create("fixtures", 2)
    rows = {0: [(b"k", b"0"), (None, b"1")], 1: [(b"k", None)]}
    bus.place_all_on(1)
    bus.produce(topic, rows)
    bus.spread()
    assert bus.contents(topic) == rows


def test_a_foreign_broker_keeps_rows(foreign: Bus) -> None:
    foreign.produce("elsewhere", {3: [(b"k", b"v")]})
    assert foreign.contents("elsewhere") == {0: [], 1: [], 2: [], 3: [(b"k", b"v")]}


@pytest.mark.spark
def test_workers_run_this_checkout(spark: Any) -> None:
    def where(_: Any) -> str:
        import pyspark_evenkeel

        return str(pyspark_evenkeel.__file__)

    found = spark.sparkContext.parallelize([1], 1).map(where).collect()
    assert found == [os.path.join(os.getcwd(), "pyspark_evenkeel", "__init__.py")]
