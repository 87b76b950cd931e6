"""make compat: every common Kafka client against three real nodes; a matrix is what comes out.

    python -m tests.compat                      all, and docs/compat.md is written anew
    python -m tests.compat --language Java      its section alone; a language that is not installed
                                                here is skipped, and its section stays as it is
    python -m tests.compat --language Java --program clients --row "moves|group"
    python -m tests.compat --client aiokafka --feature "group: static member"

Exits with 1 if a cell failed.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cluster import status
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from tests.compat import by_language, cells
from tests.compat.aio import Aiokafka
from tests.compat.cells import Cell, Verdict
from tests.compat.confluent import Confluent
from tests.compat.faults import ClusterFaults
from tests.compat.features import FEATURES, Story
from tests.compat.kafkapython import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.model import Client, Lacking

PYTHON: Final = "Python, and librdkafka"
"""The section of the clients that are called in this process, and of kcat."""
START_S_MAX: Final = 120.0
CLIENTS: Final[Mapping[str, Callable[[str], Client]]] = {
    "confluent": Confluent,
    "confluent-consumer": partial(Confluent, group_protocol="consumer"),
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "kcat": Kcat,
}
GROUPS_ONLY: Final = "confluent-consumer"
"""It differs from the plain one only in features whose name begins with "group"."""


def run(client: Client, bootstrap: str, number: int, feature: str) -> Cell:
    story = Story(client, f"compat-{number}-{list(FEATURES).index(feature)}", bootstrap)
    begun = time.monotonic()
    try:
        FEATURES[feature](story)
    except Lacking:
        return Cell(Verdict.LACKING)
    except Exception as error:  # noqa: BLE001  whatever a library raises is the cell's verdict
        traceback.print_exc()
        return Cell(Verdict.FAILED, time.monotonic() - begun, f"{type(error).__name__}: {error}")
    return Cell(Verdict.OK, time.monotonic() - begun)


def matrix(bootstrap: str, clients: list[str], features: list[str]) -> dict[str, dict[str, Cell]]:
    told: dict[str, dict[str, Cell]] = {}
    for number, key in enumerate(clients):
        missing = Kcat.missing() if key == "kcat" else None
        if missing is not None:
            print(f"{key}: skipped, {missing}")
            continue
        client = CLIENTS[key](bootstrap)
        name = f"{client.name} {client.version()}"
        told[name] = {}
        for feature in features:
            if key == GROUPS_ONLY and not feature.startswith("group"):
                continue
            cell = told[name][feature] = run(client, bootstrap, number, feature)
            print(f"{name:45} {feature:40} {cell.verdict:8} {cell.seconds:5.1f} s {cell.why[:200]}")
    return told


async def everything_has_a_master(cluster: Launcher) -> None:
    with trio.fail_after(START_S_MAX):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if view.groups and all(group.master is not None for group in view.groups):
                return
            await trio.sleep(0.1)


@asynccontextmanager
async def nodes(directory: Path, count: int) -> AsyncIterator[Launcher]:
    spec, _ = plan(directory, node_count=count, groups=12, fixed_ports=False)
    settings = [
        "broker.retention_ms=-1",  # of some stories the records are years old
        "balancer.hold_down_ms=300",  # rows move masters one move after the other
    ]
    async with launch(spec, overrides=settings) as cluster:
        await cluster.start_all(START_S_MAX)
        await everything_has_a_master(cluster)
        yield cluster


async def main(options: argparse.Namespace) -> int:
    all_python = not (options.client or options.feature)
    python = not (options.language or options.program or options.row)
    languages = options.language or (list(by_language.LANGUAGES) if all_python else [])
    failed, sections = 0, {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        async with nodes(directory / "data", 3) as cluster:
            if python:
                chosen = options.client or list(CLIENTS), options.feature or list(FEATURES)
                told = await trio.to_thread.run_sync(matrix, cluster.spec.bootstrap, *chosen)
                sections[PYTHON] = cells.table(told, chosen[1])
                failed += sum(
                    bool(cell.why) for column in told.values() for cell in column.values()
                )
            if languages:
                tables, more = await in_languages(cluster, directory, languages, options)
                sections |= tables
                failed += more
    if all_python and not (options.program or options.row):
        cells.write(sections)
        print(f"written: {cells.REPORT.name}")
    print(f"{failed} cells failed")
    return 1 if failed else 0


async def in_languages(
    cluster: Launcher, directory: Path, languages: Sequence[str], options: argparse.Namespace
) -> tuple[dict[str, str], int]:
    """With a second cluster beside the first: MirrorMaker copies from one to the other."""
    async with nodes(directory / "elsewhere", 1) as elsewhere:
        faults = ClusterFaults.of(cluster)
        site = by_language.Site(
            cluster.spec.bootstrap, elsewhere.spec.bootstrap, faults, directory / "rows"
        )
        ask = partial(by_language.tables, site, languages, options.program, options.row)
        return await trio.to_thread.run_sync(ask)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make compat", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--client", action="append", choices=CLIENTS)
    parser.add_argument("--feature", action="append", choices=FEATURES)
    parser.add_argument("--language", action="append", choices=by_language.LANGUAGES)
    parser.add_argument("--program", default="", help="only clients of these names (an expression)")
    parser.add_argument("--row", default="", help="only rows of these names (an expression)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
