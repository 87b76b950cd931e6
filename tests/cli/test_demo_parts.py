"""Parts of the demonstration that need no cluster: gaps, views, and the verdict."""

import io
from typing import Any

import pytest
from rich.console import Console

from cli.demo.report import Findings, Move, render
from cli.demo.view import LiveView, PlainView
from cluster.spec import NodeSpec
from cluster.status import ClusterView, NodeRow, merge
from cluster.workload import longest_gap_ns
from runtime.config.config import Address


@pytest.mark.parametrize(
    ("acks", "interval", "gap"),
    [
        ([], (10, 30), 20),
        ([0, 10, 20, 30, 40], (10, 30), 10),
        ([0, 10, 28, 30], (12, 20), 18),
        ([0, 10, 28, 90], (12, 40), 62),
        ([0, 100], (40, 50), 100),
        ([15, 20], (10, 22), 5),
        ([18, 20], (10, 22), 8),
        ([0, 5], (10, 30), 25),
        ([0, 50, 51, 52, 90], (50, 52), 1),
    ],
)
def test_the_longest_gap_that_touches_an_interval(
    acks: list[int], interval: tuple[int, int], gap: int
) -> None:
    assert longest_gap_ns(acks, *interval) == gap


def picture() -> ClusterView:
    def group(number: int, master: int) -> dict[str, Any]:
        return {
            "group": number,
            "master": master,
            "acting": True,
            "ideal": 1,
            "lease_left_ms": 1.0,
            "ballot": [1, master],
            "applied": 1,
            "chosen": 1,
            "lag": {},
        }

    def node(number: int) -> NodeRow:
        address = Address("127.0.0.1", number)
        groups = [group(0, 1), group(1, 2), group(2, 3)]
        status = {"placement_version": 1, "balancer": None, "steals": [], "groups": groups}
        spec = NodeSpec(number, address, address, address)
        running = number != 3
        state = "running" if running else "killed"
        return NodeRow(spec=spec, state=state, pid=1, status=status if running else None)

    return merge("c", tuple(node(number) for number in (1, 2, 3)))


def test_the_plain_view_is_lines() -> None:
    lines: list[str] = []
    view = PlainView(lines.append)
    view.phase("start")
    view.cluster(picture(), {"errors": "0"})
    view.cluster(picture(), {"errors": "1"})
    view.note("node 2 killed")
    view.close()
    assert [line.partition("] ")[2] for line in lines] == [
        "== start",
        "   masters by node 1: 1, 2: 1, 3: 0; errors 0",
        "   node 2 killed",
    ]


def test_the_live_view_shows_phases_masters_and_figures() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    view = LiveView(console)
    view.phase("start")
    view.phase("go on")
    view.note("node 3 killed")
    view.cluster(picture(), {"errors": "0"})
    view.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    shown = text[text.rindex("✓ start") :]
    for part in ("✓ go on", "killed", "nobody", "errors 0", "node 3 killed"):
        assert part in shown


def shown(findings: Findings) -> str:
    console = Console(file=io.StringIO(), width=80)
    for part in render(findings):
        console.print(part)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_verdict_is_that_of_all_checks() -> None:
    findings = Findings()
    assert not findings.passed, "a demonstration that checked nothing has not passed"
    findings.check("first", True, "3 of 3")
    assert findings.passed
    assert "everything passed" in shown(findings)
    findings.check("second", False, "2 of 3")
    assert not findings.passed
    text = shown(findings)
    assert "NOT EVERYTHING PASSED" in text
    assert "FAIL" in text
    assert "second" in text


def test_steals_and_figures_are_told() -> None:
    findings = Findings(moves=[Move(3, 1, 2, 41.0, (43.1, 87.4)), Move(0, 1, 3, 40.0, None)])
    findings.figure("acknowledged QPS, balanced", "100,000 messages/s")
    text = shown(findings)
    assert "87 ms" in text
    assert "node 2" in text
    assert "100,000 messages/s" in text
    assert "share this machine's cores" in text
