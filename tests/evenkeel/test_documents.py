"""Every example of docs/client.md runs, from the first to the last, exactly as printed."""

import re
from pathlib import Path

import pytest
import trio

from tests.evenkeel.peers import write_by_confluent
from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
STEP_S = 60.0


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


async def test_the_examples_run(cluster: SharedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create_topic("orders", partitions=2)
    await write_by_confluent(
        cluster.bootstrap,
        [{"topic": "orders", "partition": n % 2, "value": b"%d" % n} for n in range(4)],
    )
    for example in examples():
        body = "".join(f"    {line}\n" for line in example.splitlines())
        body = body.replace('"localhost:9092"', repr(cluster.bootstrap))
        scope: dict[str, object] = {}
        exec(f"async def example():\n{body}", scope)
        with trio.fail_after(STEP_S):
            await scope["example"]()  # type: ignore[operator]
    printed = capsys.readouterr().out
    assert "1000\n" in printed
    assert "mine: orders/0 orders/1" in printed
    assert "5 is led by node" in printed
    assert "crawled page 3 of asia" in printed
    assert "mine: orders/1" in printed
    assert len(examples()) >= 8
