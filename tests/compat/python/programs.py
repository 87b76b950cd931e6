"""Clients for Python as programs of their own: what groups and faults show.

What needs neither (settings, headers, administration, ...) is shown in this process instead
(in_python.py). pyproject.toml says which versions `make compat` installs.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tests.compat.language_rows import ROWS
from tests.compat.languages import Missing, Program

APPS: Final = Path(__file__).parent / "apps"
LIBRARIES: Final[Mapping[str, str]] = {
    "confluent-kafka": "confluent.py",
    "kafka-python": "kafka_python.py",
    "aiokafka": "on_aiokafka.py",
}
SHOWN: Final = tuple(
    name
    for name in ROWS
    if name == "consume" or name.startswith(("produce", "group", "moves", "a kill", "a rolling"))
)
BY_THE_BROKER: Final = "group: shared out by the broker"
LACKS: Final[Mapping[str, frozenset[str]]] = {
    "confluent-kafka": frozenset({"group: sticky"}),
    "kafka-python": frozenset({BY_THE_BROKER}),
    "aiokafka": frozenset({BY_THE_BROKER, "group: cooperative-sticky"}),
}
"""What no program can show, since the client has no words for it."""


def programs(scratch: Path) -> list[Program]:
    found = []
    for library, app in LIBRARIES.items():
        try:
            column = f"{library} {version(library)}"
        except PackageNotFoundError:
            print(f"{library}: skipped, it is not installed")
            continue
        shows = tuple(name for name in SHOWN if name not in LACKS[library])
        command = (sys.executable, str(APPS / app))
        found.append(Program("Python", column, command, shows=shows))
    if not found:
        raise Missing("none of its libraries is installed")
    return found
