"""The section "Differences from Apache Kafka" of docs/kafka.md: the reasons of differences.toml."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.compat.side_by_side.comparison import Reason

PAGE: Final = Path(__file__).parents[3] / "docs" / "kafka.md"
TITLE: Final = "## Differences from Apache Kafka"
INTRODUCTION: Final = """
Held by `make side-by-side`: the same requests, right and wrong ones, in every version that both
serve, go to a real Apache Kafka 4 broker and to Evenkeel, and the answers are compared field by
field. Each difference has its reason in `tests/compat/side_by_side/differences.toml`, from which
this section is written; any other fails the run. Words of messages, ids and times are not compared.
"""


def section(table: Sequence[Reason]) -> str:
    topics = dict.fromkeys(reason.topic for reason in table if reason.topic)
    lines = [TITLE, INTRODUCTION, "| about | what differs, and why |", "|---|---|"]
    for topic in topics:
        told = dict.fromkeys(reason.why for reason in table if reason.topic == topic)
        lines.append(f"| {topic} | {' '.join(told)} |")
    return "\n".join(lines) + "\n"


def with_section(text: str, table: Sequence[Reason]) -> str:
    """The page with its section written anew; it stands at the end if it is new."""
    written = section(table)
    pattern = re.compile(rf"^{re.escape(TITLE)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(lambda _: written + "\n", text).rstrip() + "\n"
    return f"{text.rstrip()}\n\n{written}"


def write(table: Sequence[Reason]) -> None:
    PAGE.write_text(with_section(PAGE.read_text(), table))
