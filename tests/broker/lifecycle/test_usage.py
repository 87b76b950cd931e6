"""How much disk a node will need: by limits and rates, and when it will be full."""

from math import inf

import attrs
import pytest

from broker.config import BrokerConfig
from broker.lifecycle.disk_forecast import Flow, Forecast, Limits, TopicUse, forecast, time_until
from broker.lifecycle.growth_rates import GrowthRates
from broker.lifecycle.retention import retention_of, segments_of
from broker.state_machine.batch_index import BatchIndex
from broker.topic_configs import is_compacted
from storage.usage import Usage

MIB = 1 << 20
SECOND = 1_000_000_000
CONFIG = BrokerConfig(cluster_id="c", groups_count=1)
LIMITS = Limits(
    log_bytes=100 * MIB,
    segment_bytes=10 * MIB,
    checkpoint_bytes=20 * MIB,
    settle_bytes_per_s=0,
    reserve_bytes=8 * MIB,
    low_water_bytes=16 * MIB,
    check_ms=10_000,
)
LOG = 120 * MIB
"""The log window, and prepared files."""


def use(
    name: str = "t", *, mib_per_s: float | None = 1.0, cold: int = 0, **configs: str
) -> TopicUse:
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicUse(
        topic=name,
        partitions=4,
        log=10 * MIB,
        cold=cold * MIB,
        batches_in_log=10,
        rate=None if mib_per_s is None else mib_per_s * MIB,
        growth=None if mib_per_s is None else mib_per_s * MIB / 10,
        rules=retention_of(configs, CONFIG),
        compacted=is_compacted(configs),
        segments=segments_of(configs, CONFIG),
    )


def look(*topics: TopicUse, free: int = 10_000, limits: Limits = LIMITS) -> Forecast:
    found = Usage(
        log=LOG,
        log_segments=12,
        checkpoints=2 * MIB,
        cold={number: one.cold for number, one in enumerate(topics)},
        reserve=8 * MIB,
        other=0,
        free=free * MIB,
    )
    return forecast(topics, found, [MIB], 0.0, limits)


@pytest.mark.parametrize(
    ("topic", "steady", "most"),
    [
        # so much of each partition, and an eighth and a sixteenth more until compaction is worth it
        (use(retention_bytes=f"{100 * MIB}"), (400, 440), 480),
        (use(retention_bytes=f"{100 * MIB}", mib_per_s=0), (10, 10), 480),  # it stays as it is
        # a rate of 1 MiB/s for 1000 s
        (use(retention_ms="1000000"), (1000, 1110), 1220),
        (use(retention_ms="1000000", mib_per_s=0), (0, 0), 1),
        (use(retention_ms="1000000", mib_per_s=None), None, None),  # not known yet
        # the earliest limit counts
        (use(retention_ms="1000000", retention_bytes=f"{100 * MIB}"), (400, 440), 480),
        (use(retention_ms="100000", retention_bytes=f"{100 * MIB}"), (100, 150), 200),
        (use(retention_ms="1000000", retention_bytes=f"{MIB}", mib_per_s=None), (10, 10), 11),
        (use(retention_ms="1000000", cleanup_policy="compact,delete"), (1000, 1110), 1220),
    ],
)
def test_what_a_topic_keeps(
    topic: TopicUse, steady: tuple[int, int] | None, most: int | None
) -> None:
    (found,) = look(topic).topics
    assert not found.unbounded
    if steady is None or most is None:
        assert found.steady is None
        assert found.bound is None
        return
    assert found.steady is not None
    assert found.bound is not None
    assert steady[0] <= found.steady / MIB <= steady[1]
    assert found.steady <= found.bound <= most * MIB


@pytest.mark.parametrize(
    ("topic", "why", "grows"),
    [
        (use(retention_ms="-1"), "kept for ever", 1.0),
        (use(cleanup_policy="compact"), "compacted: it grows with its keys", 0.1),
        (attrs.evolve(use(cleanup_policy="compact"), growth=-1.0), "compacted: it grows", 0.0),
    ],
)
def test_what_has_no_end_is_named(topic: TopicUse, why: str, grows: float) -> None:
    found = look(topic, use("bounded", retention_ms="1000"))
    (endless,) = found.unbounded
    assert endless.unbounded.startswith(why)
    assert endless.steady is None
    assert endless.bound is None
    assert endless.grows == pytest.approx(grows * MIB, rel=0.01)
    assert found.fits == (grows == 0)
    if grows:  # all free bytes but the low water
        assert found.full_in_s == pytest.approx((10_000 - 16) / grows, rel=0.01)


def test_the_whole_directory() -> None:
    """The newest data is in the log, which has a fixed size whatever it contains."""
    found = look(use(retention_ms="1000000"))
    cold = found.predicted - LOG - 8 * MIB - 2 * MIB
    assert 900 <= cold / MIB <= 1_020  # 100 s of it are in the log
    assert found.predicted < found.bound < found.predicted + 300 * MIB
    assert found.limit == LOG + (2 + 8 + 10_000) * MIB
    assert found.usable == found.limit - 16 * MIB
    assert found.fits
    slow = attrs.evolve(LIMITS, settle_bytes_per_s=MIB // 2)
    assert look(use(retention_ms="1000000"), limits=slow).bound == found.bound + 100 * MIB
    small = look(use(retention_ms="1000000"), free=516)
    assert not small.fits
    assert small.full_in_s == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(
    ("room", "flows", "expected"),
    [
        (0, [], 0.0),
        (100, [], inf),
        (100, [Flow(0, 10, inf)], 10.0),
        (100, [Flow(0, 10, 100)], 10.0),
        (100, [Flow(0, 10, 99)], inf),
        (100, [Flow(50, 10, inf)], 60.0),
        (100, [Flow(0, 10, 50), Flow(5, 1, inf)], 55.0),
        (100, [Flow(0, 10, 50), Flow(0, 5, inf)], 10.0),
        (100, [Flow(inf, 10, inf)], inf),
        (100, [Flow(0, 1e-12, inf)], inf),
        (100, [Flow(0, 1e-3, inf), Flow(0, 0.0, inf), Flow(0, 5, 0)], 100_000.0),
        (100, [Flow(0, 1e-7, inf)], inf),  # in thirty years
    ],
)
def test_the_time_until_it_is_full(room: float, flows: list[Flow], expected: float) -> None:
    assert time_until(room, flows) == pytest.approx(expected)


def appended(index: BatchIndex, size: int) -> None:
    index.append(index.stop, 0, size, 0)


def test_rates_are_known_after_two_looks_and_forget() -> None:
    """A state transferred from another node is no traffic, and neither is what was there at the
    start."""
    rates, index = GrowthRates(), BatchIndex(1 << 40)
    now = 0
    for number in range(3):
        rates.see("t", 7, index, now)
        rates.end_pass({"t": number * 500}, now)
        assert rates.appended("t") == (None if number == 0 else pytest.approx(100))
        assert rates.growth("t") == (None if number == 0 else pytest.approx(50))
        appended(index, 1_000)
        now += 10 * SECOND
    assert rates.measured_s == 20
    other = BatchIndex(1 << 50)
    rates.see("t", 7, other, now)
    rates.end_pass({"t": 0}, now)
    assert rates.appended("t") == pytest.approx(100)
    for _ in range(1_000):
        now += 10 * SECOND
        rates.see("t", 7, other, now)
        rates.end_pass({"t": 0}, now)
    assert rates.appended("t") == pytest.approx(0, abs=10)
    rates.end_pass({}, now + SECOND)
    assert rates.appended("t") is None
