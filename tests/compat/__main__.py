"""make compat: every common Kafka client against three real nodes; a matrix is what comes out.

    python -m tests.compat                      all, and docs/compat.md is written anew
    python -m tests.compat --client aiokafka --feature "group: static member"

Exits with 1 if a cell failed.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from cluster import status
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from tests.compat.aio import Aiokafka
from tests.compat.confluent import Confluent
from tests.compat.features import FEATURES, Story
from tests.compat.kafkapython import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.model import Client, Lacking

REPORT: Final = Path(__file__).parents[2] / "docs" / "compat.md"
START_S_MAX: Final = 60.0
CLIENTS: Final[Mapping[str, Callable[[str], Client]]] = {
    "confluent": Confluent,
    "confluent-consumer": partial(Confluent, group_protocol="consumer"),
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "kcat": Kcat,
}
GROUPS_ONLY: Final = "confluent-consumer"
"""It differs from the plain one only in features whose name begins with "group"."""


class Verdict(StrEnum):
    OK = "yes"
    LACKING = "-"
    FAILED = "**no**"


@attrs.frozen
class Cell:
    verdict: Verdict
    seconds: float = 0.0
    why: str = ""


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


def markdown(told: dict[str, dict[str, Cell]], features: list[str]) -> str:
    lines = [
        "# Clients that work unmodified",
        "",
        "Written by `make compat`: every client library as its users would use it, against three",
        f"real nodes. {Verdict.OK}: works; {Verdict.LACKING}: the library has no call for it, or",
        "the row does not concern it. What is refused, and how, is in [kafka.md](kafka.md).",
        "",
        "| | " + " | ".join(told) + " |",
        "|---|" + "---|" * len(told),
    ]
    for feature in features:
        cells = [column.get(feature, Cell(Verdict.LACKING)).verdict for column in told.values()]
        lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


async def everything_has_a_master(cluster: Launcher) -> None:
    with trio.fail_after(START_S_MAX):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if view.groups and all(group.master is not None for group in view.groups):
                return
            await trio.sleep(0.1)


async def main(options: argparse.Namespace) -> int:
    clients = options.client or list(CLIENTS)
    features = options.feature or list(FEATURES)
    with tempfile.TemporaryDirectory() as directory:
        spec, _ = plan(Path(directory) / "data", node_count=3, groups=12, fixed_ports=False)
        kept = ["broker.retention_ms=-1"]  # of some stories the records are years old
        async with launch(spec, overrides=kept) as cluster:
            await cluster.start_all()
            await everything_has_a_master(cluster)
            told = await trio.to_thread.run_sync(matrix, spec.bootstrap, clients, features)
    if not options.client and not options.feature:
        REPORT.write_text(markdown(told, features))
        print(f"written: {REPORT.relative_to(Path.cwd())}")
    failed = [cell for column in told.values() for cell in column.values() if cell.why]
    print(f"{len(failed)} cells failed")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--client", action="append", choices=CLIENTS)
    parser.add_argument("--feature", action="append", choices=FEATURES)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
