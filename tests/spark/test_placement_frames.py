"""The placement job's data frames: the same verdicts and costs as `pipeline.placement.logic`, in
batch and as a stream with reports that come late, twice or out of order."""

import base64
import json
import os
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from balancer.registry.load import (
    NUMBER_MAX,
    REPORT_BYTES_MAX,
    LoadError,
    LoadReport,
    UnknownVersionError,
    decode_report,
    encode_report,
)
from balancer.registry.records import GROUPS_MAX
from paxos.ids import GroupId
from pipeline.placement.admin import Endpoint, Nodes
from pipeline.placement.logic import (
    AHEAD,
    DUPLICATE,
    LATE,
    MALFORMED,
    UNKNOWN_VERSION,
    GroupCost,
    Measure,
    Rules,
    Timing,
    closed_until_ms,
    group_costs,
)
from pipeline.placement.publishing import Decision, Outcome, Publisher
from pipeline.placement.stream import Computation, Decisions, tally_of
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.pipeline.placement.node import Node, served
from tests.pipeline.placement.reports import START_MS, report, steady
from tests.spark.bus import OurBus

pytestmark = pytest.mark.spark

TIMING = Timing()
SOUND = report(1, 0, {1: 5, 2: 700})


def changed(**fields: object) -> bytes:
    return json.dumps(json.loads(encode_report(SOUND)) | fields).encode()


def loaded(**fields: object) -> bytes:
    """With a load that has these fields."""
    load = {"bytes_in": 1, "bytes_out": 2, "requests": 3, "cpu_us": 4, "bytes_kept": 5} | fields
    return changed(groups={"1": {name: one for name, one in load.items() if one != "none"}})


def verdict(value: bytes | None) -> str | None:
    """As `balancer.registry.load.decode_report` judges."""
    try:
        found = decode_report(value or b"")
    except UnknownVersionError:
        return UNKNOWN_VERSION
    except LoadError:
        return MALFORMED
    return AHEAD if found.wall_ms > time.time() * 1_000 + 60_000 else None


VALUES = [
    None,
    b"",
    b"\xff",
    b"{",
    b"null",
    b"5",
    b"[]",
    b'["x"]',
    encode_report(SOUND),
    encode_report(SOUND)[:-3],
    b"[" + encode_report(SOUND) + b"]",
    encode_report(SOUND).replace(b'"node":1', b'"node":01'),
    encode_report(SOUND).replace(b'"node":1', b'"node":NaN'),
    encode_report(SOUND).replace(b'"', b"'"),
    json.dumps(json.loads(encode_report(SOUND))).encode("utf-16"),
    encode_report(SOUND).decode().encode("utf-8-sig"),
    changed(colour="blue", more={"x": [1]}),
    changed(colour="\N{SNOWMAN}"),
    encode_report(SOUND)[:-1] + b',"colour":"\xff"}',
    changed(version=2, groups=[]),
    changed(version=0),
    changed(version="1"),
    changed(version=None),
    changed(node=-1),
    changed(node=1.5),
    changed(node=1e3),
    changed(node=True),
    changed(node=None),
    changed(node="1"),
    changed(node=2**70),
    changed(incarnation=NUMBER_MAX),
    changed(incarnation=NUMBER_MAX + 1),
    changed(interval_ms=0),
    changed(wall_ms=NUMBER_MAX),
    changed(wall_ms=round(time.time() * 1_000) + 3_600_000),
    changed(uptime_ms={}),
    changed(groups={}),
    changed(groups=[]),
    changed(groups={"1": 5}),
    changed(groups={"1": None}),
    changed(groups={"1": {}}),
    changed(groups={"x": {}}),
    loaded(),
    loaded(bytes_kept="none"),
    loaded(cpu_us="none"),
    loaded(cpu_us="3"),
    loaded(cpu_us=NUMBER_MAX, bytes_in=NUMBER_MAX, bytes_out=NUMBER_MAX),
    loaded(requests=-1),
    loaded(bytes_kept=-1),
    *(
        loaded().replace(b'"1":', name)
        for name in (b'"01":', b'"":', b'"-1":', b'"10000":', b'"1 ":')
    ),
    loaded().replace(b'"groups": {', b'"groups": {"01": {}, '),
    changed(groups={str(at): json.loads(loaded())["groups"]["1"] for at in range(GROUPS_MAX + 1)}),
    changed(groups={str(at): json.loads(loaded())["groups"]["1"] for at in range(GROUPS_MAX + 2)}),
    encode_report(SOUND) + b" " * REPORT_BYTES_MAX,
]


def test_every_record_gets_the_verdict_of_the_balancer(spark: Any) -> None:
    from pipeline.placement.transform import decoded

    rows = [(None if one is None else bytearray(one),) for one in VALUES]
    found = [row.fault for row in decoded(spark.createDataFrame(rows, "value binary")).collect()]
    wanted = [verdict(one) for one in VALUES]
    assert {None, MALFORMED, UNKNOWN_VERSION, AHEAD} == set(wanted)
    differ = [
        (str(value)[:200], ours, theirs)
        for value, ours, theirs in zip(VALUES, found, wanted, strict=True)
        if ours != theirs
    ]
    assert not differ


def eventful(dice: random.Random) -> list[LoadReport]:
    """Eleven minutes of three nodes: masters move; reports are lost, come twice or out of order."""
    told = []
    for second in range(0, 660, 5):
        at_home = second // 130
        for node in (1, 2, 3):
            mine = [group for group in range(8) if (group + at_home) % 3 == node - 1]
            costs = {group: dice.randrange(90_000) for group in mine}
            told.append(report(node, second + dice.random(), costs))
    told = [one for one in told if dice.random() < 0.9]
    told += dice.choices(told, k=30)
    dice.shuffle(told)
    return told


@pytest.mark.parametrize("measure", [Measure(), Measure(95)], ids=str)
def test_in_batch_costs_are_those_of_the_logic(spark: Any, measure: Measure) -> None:
    from pipeline.placement import transform

    told = eventful(random.Random(7))
    until_ms = closed_until_ms(max(one.wall_ms for one in told), TIMING)
    rows = [(bytearray(encode_report(one)),) for one in told]
    frame = transform.group_costs(spark.createDataFrame(rows, "value binary"), TIMING, measure)
    found = sorted(
        GroupCost(row.group, pytest.approx(row.work), pytest.approx(row.cost_us), row.windows)
        for row in frame.where(f"until_ms = {until_ms}").collect()
    )
    assert len(found) == 8
    assert found == sorted(group_costs(told, until_ms, TIMING, measure))


class Topic:
    """Records that arrive in given micro-batches; each `put` is one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "records"
        self._folder.mkdir()
        self._count = 0

    def put(self, values: Iterable[bytes]) -> None:
        lines = [json.dumps({"value": base64.b64encode(one).decode()}) for one in values]
        self._count += 1
        # Whole or not there; in the order of their times, which are whole seconds.
        hidden = self._folder / f".{self._count}"
        hidden.write_text("\n".join(lines), encoding="utf-8")
        os.utime(hidden, (self._count, self._count))
        hidden.rename(self._folder / f"{self._count}.json")

    def stream(self, spark: Any) -> Any:
        reader = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))


def told_until(*masters: dict[int, int], from_s: int, until_s: int) -> list[bytes]:
    nodes = dict(enumerate(masters, 1))
    return [encode_report(one) for one in steady(nodes, from_s, until_s)]


HOT = ({0: 100, 1: 9_000, 2: 9_000}, {3: 100, 4: 100}, {5: 100, 6: 100})


def computation(endpoint: Endpoint, tell: list[Decision]) -> Computation:
    publisher = Publisher(
        nodes=Nodes([endpoint]), rules=Rules(stale_s_max=600), now_ms=lambda: START_MS + 330_000
    )
    return Computation(timing=TIMING, measure=Measure(), publisher=publisher, tell=tell.append)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_stream_publishes_counts_what_it_drops_and_goes_on_after_a_restart(
    spark: Any, tmp_path: Path
) -> None:
    """Three runs on one checkpoint. The second has reports that are out of order, doubled, late and
    broken. In the third the node refuses, which is reported and ends nothing."""
    topic, node = Topic(tmp_path), Node()
    checkpoint = str(tmp_path / "checkpoint")
    decisions: list[Decision] = []
    with served(node) as endpoint:
        job = computation(endpoint, decisions)

        def run() -> list[Any]:
            query = job.begin(topic.stream(spark), checkpoint, None)
            lines: list[str] = []
            job.watch(query, lines.append, threading.Event())
            assert len(lines) == 1
            return [tally_of(one) for one in query.recentProgress if one["numInputRows"]]

        topic.put(told_until(*HOT, from_s=0, until_s=200))
        (first,) = run()
        assert (first.records, sum(first.passed_over.values())) == (120, 0)
        assert [one.outcome for one in decisions] == [Outcome.PUBLISHED]
        assert decisions[0].as_of_ms == START_MS + 150_000

        later = told_until(*HOT, from_s=200, until_s=260)
        within = later[0:3]
        late = told_until(*({group: 10**7 for group in range(7)},), from_s=150, until_s=155)
        twice = attrs.evolve(report(1, 195, HOT[0]))
        topic.put([*reversed(later[3:]), b"{", *within, *late, encode_report(twice), *later[5:7]])
        (second,) = run()
        assert second.passed_over == {
            LATE: 1,
            DUPLICATE: 3,
            MALFORMED: 1,
            UNKNOWN_VERSION: 0,
            AHEAD: 0,
        }
        assert decisions[1].as_of_ms == START_MS + 210_000
        whole = steady(dict(enumerate(HOT, 1)), 0, 260)
        alone = group_costs(whole, START_MS + 210_000, TIMING, Measure())
        same = job.publisher.decide(alone, START_MS + 210_000)
        assert decisions[1].weighed == same.weighed

        node.fails = (409, b'{"error": "stale_weights"}')
        topic.put(told_until(*HOT, from_s=260, until_s=320))
        run()
        assert [one.outcome for one in decisions[2:]] == [Outcome.FAILED]
        node.fails = None
        topic.put(told_until(*HOT, from_s=320, until_s=350))
        run()
    assert decisions[-1].outcome is Outcome.PUBLISHED
    assert node.registry.weights.computed_wall_ns == (START_MS + 300_000) * 1_000_000
    assert node.registry.weights.weights[GroupId(1)] == node.registry.weights.weights[GroupId(2)]


@pytest.mark.cluster
def test_a_decision_is_written_once(spark: Any, bus: OurBus) -> None:
    """One for each version, however often and by whomever it is written."""
    topic = bus.create("decisions", 1)
    note = Decisions({"bootstrap.servers": bus.bootstrap}, topic, "placement")
    first, second = (
        Decision(as_of_ms=START_MS + ms, outcome=Outcome.NOTHING, why="so far")
        for ms in (0, 30_000)
    )
    assert [note.write(spark, one) for one in (first, second, first)] == [""] * 3
    assert bus.contents(topic)[0] == [(b"placement", one.encode()) for one in (first, second)]
