"""The placement job from end to end: three real nodes, and a load on one of them although masters
are even by count. The balancer spreads it by the weights that the job publishes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs
import pytest
import trio

from cluster import health
from cluster.spec import NodeSpec
from cluster.workload import SteadyProducer
from pipeline.placement.admin import Endpoint, Nodes
from pipeline.placement.logic import Measure, Rules, Timing
from pipeline.placement.main import main, now_ms
from pipeline.placement.publishing import Decision, Outcome, Publisher
from pipeline.placement.stream import Computation, end_between_batches
from tests.cluster.scenery import FULL, SOON_BACK
from tests.doses import ONLY_IN_FULL
from tests.evenkeel.shared_cluster import ROOT, running_cluster, settled
from tests.spark.bus import OurBus

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

PARTITIONS = 6
RATE = 900
PAD_BYTES = 400
NOBODY = Endpoint("127.0.0.1", 1)
"""Asked first, and down: the job goes on to others."""
QUICK = Timing(window_s=2, slide_s=1, past_s=4, lateness_s=1)
QUICK_NODES = (
    "balancer.load_interval_ms=250",
    "balancer.uneven_for_ms=500",
    "balancer.uneven_pause_ms=2000",
)
LOOK_EVERY_S = 0.2
STEP_S = 400.0 if FULL else 40.0


class Cluster:
    """Three nodes as the story sees them."""

    def __init__(self, bus: OurBus) -> None:
        self.bus = bus
        self.bootstrap = bus.bootstrap
        self.nodes: Sequence[NodeSpec] = bus.cluster.spec.nodes
        self.topic = bus.create("orders", PARTITIONS)
        self.decisions = bus.create("decisions", 1)

    def shown(self) -> Any:
        """The output of `evenkeel balance show`."""
        return health.call(self.nodes[0].http, "GET", "/balancer")

    def asks(self, path: str, body: object) -> Any:
        """Also of the node that the job asks: the copies of the others may be a moment behind."""
        return health.call(self.nodes[0].http, "POST", path, body, timeout_s=health.OPERATOR_S)

    @property
    def http(self) -> str:
        return ",".join([str(NOBODY), *(str(node.http) for node in self.nodes)])

    def together(self) -> list[int]:
        """Two partitions with the same leader."""
        leaders = [self.bus.leader_of(self.topic, number) for number in range(PARTITIONS)]
        node = next(one for one in leaders if leaders.count(one) > 1)
        return [number for number, leader in enumerate(leaders) if leader == node][:2]

    @contextmanager
    def load(self, hot: Sequence[int]) -> Iterator[SteadyProducer]:
        """All but one of a hundred messages go to the hot partitions."""
        others = [number for number in range(PARTITIONS) if number not in hot]
        turns = [*[*hot] * 198, *others]
        producer = SteadyProducer(
            self.bootstrap,
            self.topic,
            partitions=PARTITIONS,
            rate=RATE,
            name="p",
            pad_bytes=PAD_BYTES,
            settings=SOON_BACK,
            turns=turns,
        )
        thread = threading.Thread(target=producer.run)
        thread.start()
        try:
            yield producer
        finally:
            producer.stop()
            thread.join()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, *(() if FULL else QUICK_NODES)) as shared:
        trio.run(shared.until, settled)
        yield Cluster(OurBus(shared.bootstrap, shared))


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + STEP_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {STEP_S} s; last seen: {what()}"
        time.sleep(LOOK_EVERY_S)


class Job(Protocol):
    """The running job; its decisions as JSON, in order."""

    decisions: list[dict[str, Any]]


@attrs.define
class InThisProcess:
    """The job's query in the session that all tests share."""

    decisions: list[dict[str, Any]] = attrs.Factory(list)

    @contextmanager
    def running(self, spark: Any, cluster: Cluster, folder: Path) -> Iterator[Job]:
        def tell(decision: Decision) -> None:
            self.decisions.append(decision.to_json())

        publisher = Publisher(
            nodes=Nodes(
                [NOBODY, *(Endpoint(one.http.host, one.http.port) for one in cluster.nodes)]
            ),
            rules=Rules(windows_min=2),
            now_ms=now_ms,
        )
        connection = {"kafka.bootstrap.servers": cluster.bootstrap}
        job = Computation(timing=QUICK, measure=Measure(), publisher=publisher, tell=tell)
        query = job.begin(job.source(spark, connection, now_ms()), str(folder / "state"), 0.3)
        try:
            yield self
            assert query.exception() is None
        finally:
            end_between_batches(query)


@attrs.define
class FromTheCommandLine:
    """`python -m pipeline placement` with its default time windows."""

    decisions: list[dict[str, Any]] = attrs.Factory(list)

    @contextmanager
    def running(self, _spark: Any, cluster: Cluster, folder: Path) -> Iterator[Job]:
        words = [sys.executable, "-m", "pipeline", "placement", "--json", "--master", "local[2]"]
        words += ["--bootstrap", cluster.bootstrap, "--http", cluster.http]
        words += ["--decisions", cluster.decisions]
        env = {**os.environ, "PYTHONPATH": ROOT}
        with (
            (folder / "job.log").open("w") as log,
            subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as job,
        ):
            assert job.stdout is not None
            reader = threading.Thread(target=self._read, args=(job.stdout,))
            reader.start()
            try:
                yield self
                assert job.poll() is None, (folder / "job.log").read_text()
            finally:
                job.send_signal(signal.SIGTERM)
                assert job.wait(60) == 0, (folder / "job.log").read_text()
                reader.join()

    def _read(self, lines: Any) -> None:
        self.decisions.extend(map(json.loads, lines))


def plain(cluster: Cluster, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The decision of the same computation without Spark, as soon as there is something to move."""
    timing = ["--window", "2", "--slide", "1", "--past", "4", "--lateness", "1"]
    command = ["--bootstrap", cluster.bootstrap, "--http", cluster.http, "--once"]
    command += ["--no-spark", "--json", "--windows-min", "2", *timing, *words]
    told: list[dict[str, Any]] = []

    def done() -> bool:
        code = main(command)
        told[:] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (code == 0) == any(one["outcome"] in ("dry", "published") for one in told)
        return code == 0 and bool(told[0]["moves"])

    until(done, lambda: told)
    return told[0]


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_skewed_load_is_spread_by_the_weights_the_job_publishes(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """First without Spark: the plan it shows is the one that nodes make of its weights. Then the
    job publishes, and the balancer follows it; no producer sees an error."""
    spark = None if FULL else request.getfixturevalue("spark")
    hot = cluster.together()
    cluster.asks("/admin/balancer", {"paused": True})
    cluster.asks("/admin/policy", {"evenness": "weight"})
    with cluster.load(hot) as producer:
        looked = plain(cluster, capsys)
        assert looked["outcome"] == Outcome.DRY
        assert cluster.shown()["weights"]["published"] is None
        told = plain(cluster, capsys, "--publish", "--source", "plain")
        assert told["outcome"] == Outcome.PUBLISHED
        planned = cluster.asks("/admin/plan", {"dry_run": True})
        assert planned["weights"] == "plain"
        moves = {one["group"]: one["target"] for one in planned["decisions"] if one["move"]}
        assert moves == {one["group"]: one["target"] for one in told["moves"]}
        assert told["balancer"].startswith("nothing: it is paused")

        job = FromTheCommandLine() if FULL else InThisProcess()
        with job.running(spark, cluster, tmp_path):
            until(lambda: cluster.shown()["weights"]["source"] == "placement", cluster.shown)
            first = job.decisions[-1]
            assert first["ratio_now"] > 1.8, "two groups in seven do all the work, on one node"
            cluster.asks("/admin/balancer", {"paused": False})
            until(lambda: bool(cluster.shown()["plans"]), cluster.shown)
            after_ms = cluster.shown()["plans"][0]["wall_ms"]
            until(lambda: job.decisions[-1]["as_of_ms"] > after_ms, lambda: job.decisions[-1])
            until(lambda: in_place(cluster.shown()), cluster.shown)
            last = job.decisions[-1]
    assert not producer.errors
    shown = cluster.shown()
    assert {one["weights"] for one in shown["plans"]} == {"placement"}
    assert shown["plans"][0]["trigger"] == "uneven by weight"
    assert [move["reason"] for move in shown["plans"][0]["moves"]].count("evenness") > 0
    masters = {one["group"]: one["master"] for one in shown["groups"]}
    heavy = sorted(first["weights"], key=first["weights"].get)[-2:]
    assert len({masters[int(group)] for group in heavy}) == 2
    assert last["ratio_now"] < 1.45, "either of them alone is a share and a fifth"
    if FULL:
        noted = [
            json.loads(value or b"") for _, value in cluster.bus.contents(cluster.decisions)[0]
        ]
        assert noted == job.decisions[: len(noted)]
        assert len(noted) >= len(job.decisions) - 1, (
            "what was under way when it ended may be missing"
        )
    plan = shown["plans"][0]
    with capsys.disabled():
        print(  # noqa: T201 (what docs/spark.md quotes)
            f"\nfullest node to its share: {first['ratio_now']:.2f}, "
            f"{last['ratio_now']:.2f} after {plan['moves_count']} moves (proof: {plan['proof']}); "
            f"{producer.acknowledged} messages, 0 errors"
        )


def in_place(shown: Any) -> bool:
    return all(one["why"] == "in-place" for one in shown["groups"])
