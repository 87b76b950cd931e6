"""Exam row X5: thousands of connections that ask for nothing, and new ones all the time.

A quiet client of the cluster sees no error and, in the full dose, at most twice its usual p99.
Nodes reach each other, new clients get in, masters stay, and the log reports refusals once a
second.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from cluster import health, status, workload
from cluster.launcher import Launcher
from tests.cluster.scenery import FULL, everything_has_a_master, in_thread, three_nodes, until
from tests.exam.load.flooded_node import GIVE_UP_S, TOPIC, USUAL, Caller, Quiet, compare
from wire.messages import metadata

pytestmark = pytest.mark.cluster
LOG = logging.getLogger(__name__)

IDLE, DRIPPING, NEW_PER_S = (5_000, 1_000, 200) if FULL else (500, 100, 100)
LASTS_S: Final = 240.0 if FULL else 1.0
CONNECTIONS_MAX: Final = 1_000 if FULL else 200
PER_S: Final = 20
"""The limit for one address: less than the crowd's fastest attempts."""
SETTINGS: Final = (
    f"limits.connections_max={CONNECTIONS_MAX}",
    f"limits.connections_per_ip_max={CONNECTIONS_MAX // 2}",
    f"limits.connections_per_ip_per_s={PER_S}",
    # The default lease: this test asks whether leases are kept, not how short they may be.
    "lease.duration_ms=10000",
    "lease.renew_every_ms=3000",
)
MASTER, OTHER = 1, 3


@contextmanager
def crowd(port: int) -> Iterator[dict[str, int]]:
    """The crowd's own report is there when it has ended."""
    command = [sys.executable, "-m", "tests.exam.load.crowd"]
    process = subprocess.Popen(
        [*command, *map(str, (port, IDLE, DRIPPING, NEW_PER_S))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    done: dict[str, int] = {}
    try:
        yield done
        told, _ = process.communicate("", timeout=GIVE_UP_S)
        done.update(json.loads(told.splitlines()[-1]))
    finally:
        process.kill()
        process.wait()


def served(port: int) -> int:
    """A client that the node has never seen: how many nodes it is told of."""
    caller = Caller(port, "127.0.0.201")
    try:
        return len(caller.ask(metadata.MetadataRequest([]), 9).brokers)
    finally:
        caller.close()


async def masters(cluster: Launcher) -> dict[int, tuple[int | None, tuple[int, int]]]:
    view = await status.collect(cluster.spec, cluster.now())
    return {row.group: (row.master, row.ballot) for row in view.groups}


async def all_on(cluster: Launcher, node: int) -> None:
    await health.place(cluster.spec.node(node).http, {"all_on": node})
    await until(
        cluster,
        lambda view: everything_has_a_master(view) and set(view.masters().values()) == {node},
        f"all masters on node {node}",
    )


def refusals(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] == "client refused"]


async def test_X5_who_wants_nothing_costs_nobody_anything(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, *SETTINGS) as cluster:
        spec, port = cluster.spec, cluster.spec.node(MASTER).kafka.port
        make = partial(workload.create_topic, spec.bootstrap, TOPIC, partitions=1, replication=3)
        await in_thread(make)
        await all_on(cluster, MASTER)
        with Quiet(port) as quiet:
            usual = await in_thread(partial(quiet.until, USUAL))
            burned = await in_thread(partial(quiet.beside_burners, USUAL)) if FULL else usual
            before = await masters(cluster)
            with crowd(port) as done:
                ends = time.monotonic() + LASTS_S
                during = await in_thread(partial(quiet.until, USUAL))
                while time.monotonic() < ends:
                    during += await in_thread(partial(quiet.until, 10))
                assert await in_thread(partial(served, port)) == 3, "a new client is let in"
                assert await masters(cluster) == before, "no group changed its master"
                await cluster.kill(OTHER)
                await cluster.restart(OTHER)
                await in_thread(partial(quiet.until, USUAL // 10))
            assert not quiet.errors, quiet.errors[:3]
            compare("X5 crowds", usual, burned, during)
        LOG.info("the crowd: %s", done)
        assert done["closed by the node"] > 0, "there were more than it has places"
        assert done["bytes dripped"] > 0
        told = refusals(spec.log_path(MASTER))
        assert told, "the log says which limit was met"
        at = [datetime.fromisoformat(line["time"]) for line in told]
        assert all((b - a).total_seconds() > 0.9 for a, b in pairwise(at)), "once a second at most"
