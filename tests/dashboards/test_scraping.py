"""A real Prometheus scrapes a real cluster with real clients: every query has an answer.

These must have a value within a minute: every expression of every panel, every recording rule, and
the value of every alert (without its comparison: here nothing is wrong).
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
from confluent_kafka import Consumer

from cli import main as cli
from cluster import health, prometheus
from cluster.launcher import Launcher
from cluster.spec import plan, save
from dashboards.__main__ import DASHBOARDS
from dashboards.alerts import ALERTS
from dashboards.rules import RECORDINGS
from runtime.config.config import Address
from tests.cluster.scenery import GROUPS, QUICK, TOPIC, acknowledged, in_thread, load, three_nodes
from tests.dashboards.filled import EVERYTHING, filled
from tests.dashboards.promtool import needs_prometheus

STEP_S = 40.0
SOON = (
    "storage.retention_check_ms=500",
    "storage.checkpoint_records=1000",
    "balancer.load_interval_ms=1000",
)
"""Rare by default; made frequent so that there are values of it."""
MOVE_EVERY_S = 1.5
READERS = "readers"
ROOT = Path(__file__).parents[2]


# -- asking ---------------------------------------------------------------------------------------


def ask(address: Address, path: str, **parameters: str) -> Any:
    """Prometheus's answer without its envelope."""
    query = f"?{urlencode(parameters)}" if parameters else ""
    return health.call(address, "GET", f"/api/v1/{path}{query}")["data"]


def values(address: Address, expr: str) -> list[float]:
    return [float(one["value"][1]) for one in ask(address, "query", query=expr)["result"]]


def has_value(address: Address, expr: str) -> bool:
    """NaN is a ratio of nothing to nothing: no answer for a reader."""
    return any(not isnan(value) for value in values(address, expr))


def expressions(cluster_id: str) -> dict[str, str]:
    """By the place of the query."""
    chosen = {**EVERYTHING, "cluster": cluster_id}
    found = {
        f"{board.title} / {panel.title} / {number}": filled(query.expr, chosen)
        for board in DASHBOARDS
        for panel in board.panels()
        for number, query in enumerate(panel.queries)
    }
    found |= {rule.name: rule.name for rule in RECORDINGS}
    found |= {alert.name: alert.value for alerts in ALERTS.values() for alert in alerts}
    return found


# -- a cluster that is used -----------------------------------------------------------------------


@pytest.fixture
def every_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped configuration, but with a shorter scrape interval."""
    folder = tmp_path / "every-second"
    folder.mkdir()
    for file in prometheus.FILES.glob("*.yml"):
        (folder / file.name).write_text(file.read_text().replace("_interval: 5s", "_interval: 1s"))
    monkeypatch.setattr(prometheus, "FILES", folder)


def read(bootstrap: str, stop: threading.Event) -> None:
    """A consumer group with one member, which commits as it goes."""
    settings = {
        "group.id": READERS,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([TOPIC])
    while not stop.is_set():
        consumer.poll(0.1)
    consumer.close()


async def move_around(cluster: Launcher) -> None:
    """Masters move all the time, as after failures."""
    http = cluster.spec.nodes[0].http
    everywhere: dict[str, object] = {"even": True}
    while True:
        for wanted in ({"all_on": 1}, everywhere, {"all_on": 2}, everywhere):
            await health.place(http, wanted)
            await trio.sleep(MOVE_EVERY_S)


@asynccontextmanager
async def used(cluster: Launcher) -> AsyncIterator[None]:
    """A producer, a consumer group, and masters that move, while the body runs."""
    stop = threading.Event()
    async with load(cluster, "steady") as producer, trio.open_nursery() as reading:
        reading.start_soon(in_thread, partial(read, cluster.spec.bootstrap, stop))
        try:
            await acknowledged(producer, 10)
            async with trio.open_nursery() as moving:
                moving.start_soon(move_around, cluster)
                yield
                moving.cancel_scope.cancel()
        finally:
            stop.set()


async def until(what: str, missing: Callable[[], Sequence[str]]) -> None:
    """`missing` is called in a thread until it returns nothing."""
    found: Sequence[str] = ["nobody has looked"]
    with trio.move_on_after(STEP_S):
        while found:
            found = await in_thread(missing)
            await trio.sleep(0.2)
        return
    pytest.fail(f"not within {STEP_S} s: {what}; missing:\n" + "\n".join(found))


# -- the tests ------------------------------------------------------------------------------------


@pytest.mark.cluster
@needs_prometheus
@pytest.mark.usefixtures("every_second")
async def test_every_expression_has_a_value(tmp_path: Path) -> None:
    """And no alert fires that should not, and nodes that come and go are noticed.

    Prometheus is started first: it takes five seconds to read a new list of targets.
    """
    said: list[str] = []
    spec, _ = plan(tmp_path / "data", node_count=3, groups=GROUPS, fixed_ports=False)
    save(spec, [], {})
    program = prometheus.find(os.environ)
    beside = 1 + max(max(one.kafka.port, one.peer.port, one.http.port) for one in spec.nodes)
    async with (
        prometheus.watching(spec, program, said.append, usual_port=beside) as address,
        three_nodes(tmp_path, *SOON) as cluster,
    ):
        assert cluster.spec == spec
        pending = {**expressions(spec.cluster_id), "a newcomer answers": 'up{node="4"} == 1'}
        assert len(pending) > 150

        def without_value() -> Sequence[str]:
            for where in [where for where, expr in pending.items() if has_value(address, expr)]:
                del pending[where]
            return [f"{where}: {expr}" for where, expr in pending.items()]

        async with used(cluster):
            await cluster.add(4)
            await until("every expression has a value", without_value)
        await in_thread(partial(check_rules, address))
        await check_going(cluster, address)
    assert not said
    log = spec.prometheus_dir.joinpath("prometheus.log").read_text().splitlines()
    assert [line for line in log if "Received SIGTERM" not in line] == []
    assert any(spec.prometheus_dir.joinpath("data").iterdir()), "what it collected is kept"


def check_rules(address: Address) -> None:
    rules = [rule for group in ask(address, "rules")["groups"] for rule in group["rules"]]
    alerts = {rule["name"] for rule in rules if rule["type"] == "alerting"}
    assert alerts == {alert.name for several in ALERTS.values() for alert in several}
    assert len(rules) == len(alerts) + len(RECORDINGS)
    for rule in rules:
        assert rule["health"] == "ok", rule
    assert not firing(address, 'severity="critical",node!="4"'), "nobody has let node 4 in"


def firing(address: Address, selector: str) -> list[dict[str, str]]:
    found = ask(address, "query", query=f"ALERTS{{{selector}}}")["result"]
    return [one["metric"] for one in found if one["metric"]["alertstate"] == "firing"]


async def check_going(cluster: Launcher, address: Address) -> None:
    """One node dies, another one is removed: the first is missed, the second is no longer
    scraped."""
    await cluster.kill(3)
    await cluster.kill(4)
    await cluster.forget(4)

    def not_noticed() -> Sequence[str]:
        waiting = ask(address, "query", query='ALERTS{alertname="EvenkeelNodeDown"}')["result"]
        told = [(one["metric"]["node"], one["metric"]["alertstate"]) for one in waiting]
        missing = [] if told == [("3", "pending")] else [f"an alert about node 3, not {told}"]
        targets = ask(address, "targets")["activeTargets"]
        seen = sorted((target["labels"]["node"], target["health"]) for target in targets)
        if seen != [("1", "up"), ("2", "up"), ("3", "down")]:
            missing.append(f"nodes 1 and 2 are up, 3 is down, and nobody else is asked: {seen}")
        return missing

    await until("what goes is noticed", not_noticed)


# -- evenkeel up --prometheus ---------------------------------------------------------------------


@pytest.mark.cluster
@needs_prometheus
def test_up_runs_prometheus_and_stops_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.main", "up", "-n", "1", "--groups", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [*command, "--free-ports", "--prometheus", *(f"--set={one}" for one in QUICK)],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        told = ""
        for line in launcher.stdout:
            told += line
            if line.startswith("Ctrl-C stops"):
                break
        try:
            found = re.search(r"^  http://127\.0\.0\.1:(\d+)/alerts$", told, re.MULTILINE)
            assert found, told
            address = Address("127.0.0.1", int(found[1]))
            flags = ask(address, "status/flags")
            assert flags["storage.tsdb.retention.size"] == "1GiB"
            assert flags["storage.tsdb.retention.time"] == "15d"
            assert Path(flags["storage.tsdb.path"]).is_relative_to(tmp_path / "data")
            launcher.send_signal(signal.SIGINT)
            rest = launcher.stdout.read()
            assert launcher.wait(STEP_S) == 0, rest
        finally:
            launcher.kill()
    assert "prometheus ended" not in rest, "nothing to report of an end that was asked for"
    with pytest.raises(health.HealthError):
        ask(address, "targets")


def test_up_says_where_prometheus_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started or written."""
    monkeypatch.setenv("PATH", str(tmp_path))
    data = tmp_path / "data"
    assert cli.run(["up", "--prometheus", "--data", str(data)]) == 1
    told = capsys.readouterr().err
    assert "no program `prometheus` in PATH" in told
    assert "apt-get install prometheus" in told
    assert not data.exists()


async def test_a_prometheus_that_does_not_start_says_why(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path / "data", node_count=1, fixed_ports=False)
    save(spec, [], {})
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\necho no room for it\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(prometheus.PrometheusError, match=r"exit code 3(.|\n)*no room for it"):
        async with prometheus.watching(spec, str(program), print, usual_port=None):
            pytest.fail("it cannot be ready")


async def test_the_end_of_prometheus_is_reported_and_no_more(tmp_path: Path) -> None:
    """A substitute that is ready once and then ends: the real one does not do that on request."""
    spec, _ = plan(tmp_path / "data", node_count=1, fixed_ports=False)
    save(spec, [], {})
    program = tmp_path / "prometheus"
    program.write_text(f"#!{sys.executable}\n{READY_ONCE}")
    program.chmod(0o755)
    said: list[str] = []
    async with prometheus.watching(spec, str(program), said.append, usual_port=None):
        with trio.fail_after(STEP_S):
            while not said:  # noqa: ASYNC110 (a report sets no event)
                await trio.sleep(0.01)
    (line,) = said
    assert line.startswith("prometheus ended with exit code 5")
    assert "the cluster continues" in line


READY_ONCE = """
import socket, sys
(listen,) = [a.partition("=")[2] for a in sys.argv if a.startswith("--web.listen-address=")]
host, _, port = listen.partition(":")
server = socket.create_server((host, int(port)))
client, _ = server.accept()
client.recv(4096)
client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
client.close()
sys.exit(5)
"""
