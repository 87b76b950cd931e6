"""The matrix of client libraries that are called in this process, and of kcat."""

import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.compat.aio import Aiokafka
from tests.compat.cells import Cell, Verdict
from tests.compat.confluent import Confluent
from tests.compat.features import FEATURES, Story
from tests.compat.kafkapython import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.model import Client, Lacking

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
