"""`evenkeel cluster version`: what people and programs see of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cli import main
from cli.clusters import reach
from cli.clusters.reach import RefusedError
from cli.clusters.version import render

VIEW: dict[str, Any] = {
    "version": 1,
    "newest": 2,
    "possible": 1,
    "held": False,
    "waits_for": "node 3 runs a version of Evenkeel from before there were cluster versions, which "
    "reads cluster version 1",
    "nodes": [
        {"id": 1, "software": "0.3.0", "oldest": 1, "newest": 2},
        {"id": 2, "software": None, "oldest": None, "newest": None},
        {"id": 3, "software": None, "oldest": 1, "newest": 1},
    ],
}
Asked = list[tuple[str, str, object]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the command asks a node for; it answers with VIEW, or refuses version 9."""
    seen: Asked = []

    def ask(_cluster: object, method: str, path: str, body: object = None) -> object:
        seen.append((method, path, body))
        if body == {"set": 9}:
            raise RefusedError("not every node can read cluster version 9: node 3 runs ...")
        return VIEW

    monkeypatch.setattr(reach.Cluster, "ask", ask)
    return seen


def run(*words: str) -> int:
    return main.run(["cluster", "version", *words, "--http", "127.0.0.1:8092"])


def test_it_is_shown_for_people_in_80_columns() -> None:
    lines = render(VIEW).splitlines()
    assert lines[0] == "cluster version 1"
    assert lines[2] == "   1  0.3.0         cluster versions 1 to 2"
    assert lines[3] == "   2  unknown       unknown"
    assert lines[4] == "   3  older         cluster versions 1 to 1"
    assert lines[5].startswith("cluster version 2 waits: node 3 runs a version")
    assert max(map(len, lines)) <= 80
    assert "held" in render(VIEW | {"held": True}).splitlines()[0]
    ready = render(VIEW | {"waits_for": ""}).splitlines()[-1]
    assert ready == "cluster version 2 comes by itself: every node reads it"
    assert "waits" not in render(VIEW | {"version": 2})


def test_programs_get_all_of_it(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out) == VIEW
    assert asked == [("GET", "/cluster/version", None)]


@pytest.mark.parametrize(
    ("words", "body"),
    [(["--set", "2"], {"set": 2}), (["--hold"], {"hold": True}), (["--release"], {"hold": False})],
)
def test_a_change_names_the_cluster(
    words: list[str], body: object, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 0
    assert asked[0] == ("POST", "/admin/cluster-version", body)
    told = capsys.readouterr()
    assert told.out.startswith("cluster version 1")
    assert "127.0.0.1:8092" in told.err


def test_a_refusal_says_why_and_fails(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", "9") == 1
    assert "not every node can read cluster version 9" in capsys.readouterr().err


def test_one_change_at_a_time(asked: Callable[[], object]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--set", "2", "--hold")
    assert ended.value.code == 2
