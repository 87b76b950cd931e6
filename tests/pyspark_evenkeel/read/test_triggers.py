"""minOffsetsPerTrigger and maxTriggerDelay: how long a micro-batch waits for more (no cluster)."""

import pytest

from pyspark_evenkeel.options import parse_source
from pyspark_evenkeel.read.streaming import StreamReader
from simulator.mutants.planting import Edit, Mutant, plant
from tests.pyspark_evenkeel.read.reading_scenery import Clock

OPTIONS = {
    "kafka.bootstrap.servers": "nowhere:1",
    "subscribe": "orders",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "30s",
}


def reader_at(clock: Clock) -> StreamReader:
    return StreamReader(parse_source(OPTIONS, streaming=True), None, clock)  # type: ignore[arg-type]


def test_each_delay_is_one_of_its_own() -> None:
    """Whether the micro-batch before had waited long enough, or was large enough, or all of its
    records were gone: the first record after it waits for the whole delay."""
    clock = Clock()
    reader = reader_at(clock)
    for ended_by, records in ((30, 4), (29, 10), (29, 0), (30, 9)):
        assert reader._waits_for_more(4)
        clock.now += 29
        assert reader._waits_for_more(4)
        clock.now += ended_by - 29
        assert not reader._waits_for_more(records)


def test_a_delay_that_is_counted_from_the_micro_batch_before_is_noticed() -> None:
    """As in tests/test_planted_bugs.py."""
    ends = "    self._waits_since = None\n    return False"
    bug = Edit(StreamReader._waits_for_more, ends, "    return False")
    with plant(Mutant("", "", (bug,), "")), pytest.raises(AssertionError):
        test_each_delay_is_one_of_its_own()
