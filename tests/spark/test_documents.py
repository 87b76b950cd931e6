"""The first query of docs/spark.md runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.bus import OurBus

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_first_query_runs(spark: Any, bus: OurBus, capsys: pytest.CaptureFixture[str]) -> None:
    """In the tests' session, and against their bus."""
    match = re.search(r"## First query\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    topic = bus.create("greetings", 1)
    bus.produce(topic, {0: [(None, b"hello")]})
    code = match[1].replace("127.0.0.1:9092", bus.bootstrap).replace('"greetings"', f'"{topic}"')
    exec(compile(code, str(PAGE), "exec"), {})
    shown = re.findall(r"\w+", capsys.readouterr().out)
    assert shown[-3:] == ["0", "0", "hello"]
