"""Two of three nodes are gone for good: the steps of docs/backups.md, command by command."""

import io
import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import main as cli
from tests.doses import FULL, ONLY_IN_FULL
from tests.evenkeel.shared_cluster import ROOT, STEP_S, running_cluster

pytestmark = pytest.mark.cluster

RECORDS = 2_000
GROUP = "readers"
PAGE = Path(ROOT) / "docs" / "backups.md"


def documented() -> list[tuple[str, int]]:
    """The commands of the page, and the exit code that it promises for each."""
    section = PAGE.read_text().split("## A lost majority")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    steps = []
    for line in block.splitlines():
        command, _, comment = line.partition("#")
        code = re.search(r"exit code (\d)", comment)
        steps.append((command.strip(), int(code[1]) if code else 0))
    return steps


class Terminal:
    """In the folder of the cluster; commands run in this process, which saves a minute."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys, self._patch = capsys, patch

    def run(self, line: str, code: int = 0, stdin: bytes = b"") -> str:
        words = line.split()
        assert words[0] == "evenkeel"
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            got = cli.run(words[1:])
        printed = self._capsys.readouterr()
        assert got == code, (line, printed)
        return printed.out


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_the_documented_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that the remaining node had is served again, and the cluster is whole."""
    steps = documented()
    assert [code for _, code in steps] == [3, 1, 0, 2, 0, 0, 0, 0], steps
    monkeypatch.chdir(tmp_path)
    run = Terminal(capsys, monkeypatch).run
    with running_cluster(tmp_path) as cluster:
        run("evenkeel topic create kept --partitions 4")
        lines = b"".join(b"%d:%d\n" % (number % 13, number) for number in range(RECORDS))
        run("evenkeel topic produce kept --key-separator :", stdin=lines)
        run(f"evenkeel group seek {GROUP} --to 100 --topic kept")
        before = run("evenkeel topic consume kept --json")
        committed = run(f"evenkeel group describe {GROUP} --json")
        wait_until_node_1_has_everything(run)

        for node in (2, 3):
            run(f"evenkeel kill {node}")
            shutil.rmtree(cluster.data / f"node-{node}")
        wait_until_nobody_serves(run)
        for command, code in steps:
            said = run(command, code)
            if "unsafe-recover" in command:
                assert "can lose acknowledged messages" in said

        after = run("evenkeel topic consume kept --json")
        assert sorted(after.splitlines()) == sorted(before.splitlines())
        assert len(after.splitlines()) == RECORDS
        assert offsets(run(f"evenkeel group describe {GROUP} --json")) == offsets(committed)
        run("evenkeel topic produce kept", stdin=b"new\n")
        assert '"value": "new"' in run("evenkeel topic consume kept --json")
        assert "unsafe-recovered" in (cluster.data / "node-2.log").read_text()
        assert run("evenkeel health").strip() == "healthy"


def offsets(described: str) -> list[tuple[int, int]]:
    rows = json.loads(described)["partitions"]
    return [(one["partition"], one["committed"]) for one in rows]


def wait_until_node_1_has_everything(run: Callable[..., str]) -> None:
    """What it has not received would be lost, as the page says."""
    deadline = time.monotonic() + STEP_S
    while True:
        groups = json.loads(run("evenkeel status --json"))["groups"]
        if all(one["master"] == 1 or one["lag"].get("1") == 0 for one in groups):
            return
        assert time.monotonic() < deadline, groups


def wait_until_nobody_serves(run: Callable[..., str]) -> None:
    """Leases of before are over."""
    deadline = time.monotonic() + STEP_S
    while True:
        groups = json.loads(run("evenkeel status --json", code=3))["groups"]
        if all(one["master"] is None for one in groups):
            return
        assert time.monotonic() < deadline, groups
