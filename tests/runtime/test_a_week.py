"""A node lives for a week, in minutes: what it keeps is bounded, and nothing is removed too early.

Everything is real but the clocks: log, checkpoints, cold segments and their threads on a directory,
and retention by the node's own master. `EXAM=full` (make faults) makes it the whole week.
"""

import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

from balancer.registry.commands import ConfigureTopic, CreateTopic
from broker.lifecycle.retention import SEGMENT_BYTES_LEAST
from broker.proposals.commands import records
from broker.proposals.intake import Done
from node import Node
from paxos.ids import GroupId
from runtime.upkeep.disk_usage import Look
from tests.runtime.one_node import ROUND_S, one_node, run_until
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

MINUTE_NS: Final = 60_000_000_000
LOOK_NS: Final = 1_000_000
HOUR: Final = 60
DAY: Final = 24 * HOUR
MINUTES: Final = 7 * DAY if os.environ.get("EXAM") == "full" else 6 * HOUR
KIB: Final = 1024
SEGMENT: Final = 1024 * KIB
HEADERS: Final = 80
"""The headers of a batch with one record, rounded up."""
LOG: Final = 4 * SEGMENT
PARTITIONS: Final = 2
DISK: Final = 64 * SEGMENT
FACTOR: Final = 1.25
SETS: Final = (
    "lease.duration_ms=7200000",
    "lease.renew_every_ms=1200000",
    "balancer.load_interval_ms=3600000",
    f"storage.segment_bytes={SEGMENT}",
    f"storage.log_bytes={LOG}",
    f"storage.checkpoint_bytes={SEGMENT}",
    "storage.reserve_bytes=0",
    "storage.low_water_bytes=0",
    f"storage.data_bytes_max={DISK}",
    "storage.retention_check_ms=60000",
    "storage.settle_bytes_per_s=0",
)


@attrs.frozen
class Traffic:
    """That many bytes a minute into each partition; the topic's settings decide how much is
    kept."""

    topic: str
    size: int
    configs: dict[str, str]
    minutes: int | None = None
    bytes: int | None = None

    @property
    def kept_min(self) -> int:
        """Of each partition, once it has run for long enough."""
        minutes = None if self.minutes is None else (self.minutes - 1) * (self.size - HEADERS)
        bounds = [one for one in (minutes, self.bytes) if one is not None]
        return min(bounds) - self.size

    @property
    def kept_max(self) -> int:
        """Another sixteenth is not worth a command, and a cold segment, up to an eighth, is removed
        when all of it may go (broker.lifecycle.retention); one more holds the newest data."""
        bounds = [one for one in (self._by_age(2), self.bytes) if one is not None]
        return min(bounds) * 21 // 16 + 2 * SEGMENT_BYTES_LEAST

    def _by_age(self, late: int) -> int | None:
        return None if self.minutes is None else (self.minutes + late) * self.size


TRAFFIC: Final = (
    Traffic("hour", 8 * KIB, {"retention.ms": str(HOUR * 60_000)}, minutes=HOUR),
    Traffic("large", 4 * KIB, {"retention.bytes": str(512 * KIB)}, bytes=512 * KIB),
    Traffic("day", 2 * KIB, {"retention.ms": str(DAY * 60_000)}, minutes=DAY),
    Traffic("long", 256, {"retention.ms": "-1"}, minutes=MINUTES),
)


class Calendar:
    """Clocks that the test sets, and that advance a little with every look."""

    def __init__(self) -> None:
        self.boot, self.start = 1_000_000_000, 1_790_000_000_000_000_000

    def boot_ns(self) -> int:
        self.boot += LOOK_NS
        return self.boot

    def wall_ns(self) -> int:
        return self.start + self.boot


@pytest.fixture
def node(tmp_path: Path, calendar: Calendar) -> Iterator[Node]:
    with one_node(tmp_path, *SETS, groups=2, system=calendar) as node:
        yield node


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


def create(node: Node, traffic: Traffic, number: int) -> None:
    made: list[object] = []
    node.client.propose(
        CreateTopic(traffic.topic, bytes([number]) * 16, PARTITIONS, 1), made.append
    )
    run_until(node, lambda: made)
    node.client.propose(
        ConfigureTopic(traffic.topic, bytes([number]) * 16, traffic.configs), made.append
    )
    run_until(node, lambda: len(made) == 2)


def produce(node: Node, minute: int, wall_ms: int) -> None:
    outcomes: list[object] = []
    for traffic in TRAFFIC:
        topic = node.registry.topic(traffic.topic)
        assert topic is not None
        value = minute.to_bytes(4, "big") * ((traffic.size - HEADERS) // 4)
        batch = memoryview(build_batch([Record(value, timestamp_ms=wall_ms)]))
        for place in topic.partitions:
            node.engine.submit(GroupId(place.group), records(place.uid, batch), outcomes.append)
    run_until(node, lambda: len(outcomes) == PARTITIONS * len(TRAFFIC))
    assert all(isinstance(one, Done) for one in outcomes), outcomes


def let_it_work(node: Node) -> None:
    """Rounds until nothing is under way, in any thread.

    It waits for a busy thread instead of polling it: the clock advances with every look, and on a
    slow disk hours would pass.
    """
    quiet, busy = 0, False
    while quiet < 3:
        node.shell.tick()
        fds = [node.wakeup.fd, node.upkeep.wakeup.fd]
        if select.select(fds, [], [], ROUND_S if busy else 0)[0]:
            node.engine.on_durable()
            node.upkeep.take()
            node.shell.end_of_round()
        busy = node.writer.busy or node.upkeep.busy
        quiet = 0 if busy else quiet + 1


def foretold(node: Node, calendar: Calendar) -> Look:
    """The node's present forecast for its disk."""
    passes = node.broker.retention.rates.passes
    calendar.boot += MINUTE_NS
    run_until(node, lambda: node.broker.retention.rates.passes > passes)
    let_it_work(node)
    look = node.disk_use.last
    assert look is not None
    return look


def used(directory: Path) -> dict[str, int]:
    """Bytes of the directory by kind of file."""
    kinds: dict[str, int] = {}
    for path in directory.iterdir():
        kind = path.suffix
        kinds[kind] = kinds.get(kind, 0) + path.stat().st_size
    return kinds


def test_disk_use_is_bounded_for_a_week(tmp_path: Path, node: Node, calendar: Calendar) -> None:
    """Hour by hour: the log within its window, cold data as the topics' rules want it, and no
    less."""
    run_until(node, lambda: node.shell.not_ready() == "")
    for number, traffic in enumerate(TRAFFIC):
        create(node, traffic, number + 1)
    cold_max = sum(one.kept_max for one in TRAFFIC) * PARTITIONS
    spares = 4  # one being written, one ready, two retired ones for reuse
    peaks: dict[str, int] = {}
    for minute in range(MINUTES):
        calendar.boot += MINUTE_NS
        produce(node, minute, calendar.wall_ns() // 1_000_000)
        let_it_work(node)
        if minute % HOUR:
            continue
        here = used(tmp_path / "data")
        peaks = {kind: max(size, peaks.get(kind, 0)) for kind, size in here.items()}
        assert here[".wal"] <= LOG + spares * SEGMENT, f"after {minute // HOUR} hours: {here}"
        assert here.get(".seg", 0) <= cold_max, f"after {minute // HOUR} hours: {here}"
    print(f"{MINUTES // HOUR} hours, at most {peaks}")  # noqa: T201  (for -s)
    for traffic in TRAFFIC:
        topic = node.registry.topic(traffic.topic)
        assert topic is not None
        for place in topic.partitions:
            state = node.machines[GroupId(place.group)].partition(place.uid)
            produced = MINUTES * (traffic.size - HEADERS)
            assert state.bytes_held >= min(traffic.kept_min, produced), traffic
            assert state.bytes_held <= traffic.kept_max, traffic
            assert state.next_offset == MINUTES
    look = foretold(node, calendar)
    check_foretold(look, sum(used(tmp_path / "data").values()))
    shown = node.metrics_registry.get_sample_value
    assert shown("evenkeel_disk_held_bytes", {"kind": "cold"}) == look.usage.cold_sum
    assert shown("evenkeel_disk_limit_bytes") == DISK
    assert shown("evenkeel_disk_predicted_bytes") == look.forecast.predicted
    assert shown("evenkeel_disk_full_seconds") == look.forecast.full_in_s


def check_foretold(look: Look, held: int) -> None:
    """The bound holds. Topics that have run for long enough have as much as was predicted, within a
    tenth in all and within FACTOR each; and those that grow without end are named."""
    found = look.forecast
    still_to_come = 0.0
    topics = {one.use.topic: one for one in found.topics}
    for traffic in TRAFFIC:
        one = topics[traffic.topic]
        assert one.use.rate == pytest.approx(PARTITIONS * traffic.size / 60, rel=0.1), one
        if one.steady is None or one.bound is None or one.cold_steady is None:
            continue
        assert one.use.held <= one.bound, one
        if traffic.minutes is not None and 2 * traffic.minutes > MINUTES:
            still_to_come += one.cold_steady - one.use.cold
        else:
            assert one.use.held / FACTOR <= one.steady <= one.use.held * FACTOR, one
    assert held - 100 <= look.usage.held <= held  # except the process's lock
    assert held <= found.bound, f"{held} bytes are held"
    assert found.predicted - still_to_come == pytest.approx(held, rel=0.1)
    (endless,) = found.unbounded
    assert endless.use.topic == "long"
    assert endless.use.rate is not None
    left_s = (found.usable - found.predicted) / endless.use.rate
    assert found.full_in_s == pytest.approx(left_s, rel=0.1)
    assert not found.fits
