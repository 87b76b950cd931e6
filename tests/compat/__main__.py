"""make compat: every common Kafka client against three real nodes; a matrix is what comes out.

    python -m tests.compat                      all of it
    python -m tests.compat --language Java      its section alone; a language that is not installed
                                                here is skipped, and its section stays as it is
    python -m tests.compat --language Java --program clients --row "moves|group"
    python -m tests.compat --client aiokafka --feature "group: static member"

docs/compat.md gets the cells that were run; the last form writes nothing. Exits with 1 if a cell
failed.
"""

import argparse
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cluster import status
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from tests.compat import by_language, cells
from tests.compat.faults import ClusterFaults
from tests.compat.features import FEATURES

PYTHON: Final = "Python, and librdkafka"
"""The section of the clients that are called in this process, and of kcat."""
START_S_MAX: Final = 120.0


async def everything_has_a_master(cluster: Launcher) -> None:
    with trio.fail_after(START_S_MAX):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if view.groups and all(group.master is not None for group in view.groups):
                return
            await trio.sleep(0.1)


@asynccontextmanager
async def nodes(directory: Path, count: int, more: Sequence[str] = ()) -> AsyncIterator[Launcher]:
    spec, _ = plan(directory, node_count=count, groups=12, fixed_ports=False)
    settings = [
        "broker.retention_ms=-1",  # of some stories the records are years old
        "balancer.hold_down_ms=300",  # rows move masters one move after the other
        *more,
    ]
    async with launch(spec, overrides=settings) as cluster:
        await cluster.start_all(START_S_MAX)
        await everything_has_a_master(cluster)
        yield cluster


async def main(options: argparse.Namespace) -> int:
    all_python = not (options.client or options.feature)
    python = not (options.language or options.program or options.row)
    languages = options.language or (list(by_language.LANGUAGES) if all_python else [])
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        async with nodes(directory / "data", 3) as cluster:
            if python:
                table, failed = await in_python(cluster, options)
                if all_python:
                    cells.write({PYTHON: table})
            if languages:
                failed += await in_languages(cluster, directory, languages, options)
    print(f"{failed} cells failed")
    return 1 if failed else 0


async def in_python(cluster: Launcher, options: argparse.Namespace) -> tuple[str, int]:
    from tests.compat import in_python  # the libraries are there only where this is wanted

    features = options.feature or list(FEATURES)
    clients = options.client or list(in_python.CLIENTS)
    asked = cluster.spec.bootstrap, clients, features
    told = await trio.to_thread.run_sync(in_python.matrix, *asked)
    failed = sum(bool(cell.why) for column in told.values() for cell in column.values())
    return cells.table(told, features), failed


async def in_languages(
    cluster: Launcher, directory: Path, languages: Sequence[str], options: argparse.Namespace
) -> int:
    """With a second cluster beside the first: MirrorMaker copies from one to the other."""
    async with nodes(directory / "elsewhere", 1) as elsewhere:
        faults = ClusterFaults.of(cluster)
        site = by_language.Site(
            cluster.spec.bootstrap, elsewhere.spec.bootstrap, faults, directory / "rows"
        )
        ask = partial(by_language.run, site, languages, options.program, options.row, in_the_page)
        told = await trio.to_thread.run_sync(ask)
        return sum(map(by_language.failures, told.values()))


def in_the_page(language: str, now: cells.Columns) -> None:
    columns = cells.merged(cells.read(cells.section(language)), now)
    cells.write({language: cells.table(columns, by_language.in_order(columns))})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make compat", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--client", action="append")
    parser.add_argument("--feature", action="append", choices=FEATURES)
    parser.add_argument("--language", action="append", choices=by_language.LANGUAGES)
    parser.add_argument("--program", default="", help="only clients of these names (an expression)")
    parser.add_argument("--row", default="", help="only rows of these names (an expression)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
