"""Where a query by time begins and ends, while a producer goes on writing."""

from collections.abc import Mapping
from typing import Any

import pytest

from pyspark_evenkeel.client.listing import EARLIEST, LATEST, OffsetAndTime
from pyspark_evenkeel.options import parse_source
from pyspark_evenkeel.read import planning
from wire.cluster_view import TopicPartition as Place

PLACE = Place("t", 0)


class BusyCluster:
    """One partition; between any two questions a record arrives that is as new as 50."""

    def __init__(self, *times_ms: int) -> None:
        self.times_ms = list(times_ms)

    def offsets(
        self, at: Mapping[Place, int], *, isolation_committed: bool
    ) -> dict[Place, OffsetAndTime]:
        assert set(at) == {PLACE}
        found = self._offset(at[PLACE])
        self.times_ms.append(50)
        return {PLACE: OffsetAndTime(found, -1)}

    def _offset(self, time_ms: int) -> int:
        if time_ms == LATEST:
            return len(self.times_ms)
        if time_ms == EARLIEST:
            return 0
        return next((n for n, one in enumerate(self.times_ms) if one >= time_ms), -1)


def options(**given: str) -> Any:
    every = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **given}
    return parse_source(every, streaming=False)


@pytest.mark.parametrize("times", [(), (10, 20)])
def test_what_comes_in_meanwhile_is_not_older_than_the_end(times: tuple[int, ...]) -> None:
    cluster: Any = BusyCluster(*times)
    end = planning.ends(cluster, options(endingTimestamp="40"), [PLACE])[PLACE]
    assert all(one < 40 for one in cluster.times_ms[:end])
    assert end == len(times)


def test_what_comes_in_meanwhile_is_read_behind_a_start_that_nothing_was_as_new_as() -> None:
    cluster: Any = BusyCluster(10, 20)
    by_time = {"startingTimestamp": "40", "startingOffsetsByTimestampStrategy": "latest"}
    start = planning.starts(cluster, options(**by_time), [PLACE])[PLACE]
    assert all(one < 40 for one in cluster.times_ms[:start])
    assert start == 2
