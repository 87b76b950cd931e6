"""The wheel on three machines and a client on a fourth, as network namespaces: `evenkeel init`, and
the example of docs/operations.md, form a cluster; a node that is alone says what it lacks."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks.machines.network import Namespace, Network, network
from tests.benchmarks.machines.machines_here import skip_without_machines
from tests.doses import FULL
from tests.install.conftest import ROOT, Installed

pytestmark = pytest.mark.cluster

STEP_S = 120.0
SUBNET = "10.64.0."
BOOTSTRAP = f"{SUBNET}1:9092"


@attrs.define
class Machines:
    """What runs where; everything is stopped at the end."""

    net: Network
    installed: Installed
    folder: Path
    nodes: dict[int, subprocess.Popen[bytes]] = attrs.Factory(dict)

    def command(self, place: Namespace, words: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net={place.path}", self.installed.evenkeel, *words]

    def run(self, place: Namespace, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(place, line.split()),
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.installed.env,
            timeout=STEP_S,
            check=False,
        )

    def start(self, number: int, file: Path) -> None:
        words = ["node", "start", "--config", str(file)]
        words += ["--set", f"node.data_dir={self.folder / f'data-{number}'}"]
        with self.log(number).open("wb") as log:
            self.nodes[number] = subprocess.Popen(
                self.command(self.net.machines[number - 1], words),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.installed.env,
            )

    def log(self, number: int) -> Path:
        return self.folder / f"node-{number}.log"

    def lines(self, number: int) -> list[dict[str, Any]]:
        text = self.log(number).read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEP_S
        while not holds():
            logs = {number: self.log(number).read_text()[-2000:] for number in self.nodes}
            assert time.monotonic() < deadline, f"{what}: {logs}"
            time.sleep(0.2)


@contextmanager
def machines(installed: Installed, folder: Path) -> Iterator[Machines]:
    skip_without_machines()
    with network(3) as net:
        made = Machines(net, installed, folder)
        try:
            yield made
        finally:
            for process in made.nodes.values():
                process.kill()
                process.wait()


def by_init(all_three: Machines) -> list[Path]:
    nodes = ",".join(f"{name}:{SUBNET}{number}" for number, name in enumerate("abc", 1))
    done = all_three.run(all_three.net.clients, f"init --nodes {nodes} --to files")
    assert done.returncode == 0, done.stderr
    return [all_three.folder / "files" / f"{name}.toml" for name in "abc"]


def by_the_example(all_three: Machines) -> list[Path]:
    """The file in docs/operations.md is node 1's; the others differ in what it says."""
    page = (ROOT / "docs/operations.md").read_text()
    (text,) = re.findall(r"```toml\n(\[node\].*?)```", page, re.DOTALL)
    files = []
    for number in (1, 2, 3):
        own = text.replace("id = 1", f"id = {number}")
        head, peers = own.split("[peers]")
        head = head.replace("10.0.0.1:", f"10.0.0.{number}:")
        path = all_three.folder / f"node-{number}.toml"
        path.write_text(f"{head}[peers]{peers}".replace("10.0.0.", SUBNET))
        files.append(path)
    return files


@pytest.mark.parametrize("written", [by_init, by_the_example] if FULL else [by_init])
def test_a_cluster_forms_and_serves_a_client_elsewhere(
    written: Callable[[Machines], list[Path]], installed: Installed, tmp_path: Path
) -> None:
    with machines(installed, tmp_path) as all_three:
        files = written(all_three)
        all_three.start(1, files[0])
        all_three.until("node 1 says what it lacks", lambda: len(lacks(all_three)) >= 2)
        time.sleep(2.0)
        assert len(lacks(all_three)) == 2, "not at every attempt"
        assert {one["address"] for one in lacks(all_three)} == {
            f"{SUBNET}2:7092",
            f"{SUBNET}3:7092",
        }
        assert all("nothing listens there" in one["reason"] for one in lacks(all_three))
        for number in (2, 3):
            all_three.start(number, files[number - 1])
        client = all_three.net.clients
        where = f"--bootstrap {BOOTSTRAP} --timeout 60"

        def created() -> bool:
            done = all_three.run(client, f"topic create t --partitions 3 {where}")
            return done.returncode == 0 or "ALREADY" in done.stderr

        all_three.until("a topic is created", created)
        said = all_three.run(client, f"topic produce t {where}", "one\ntwo\nthree\n")
        assert said.stdout == "3 records written to t\n", said.stderr
        read = all_three.run(client, f"topic consume t --raw {where}")
        assert sorted(read.stdout.split()) == ["one", "three", "two"], read.stderr
        told = all_three.run(client, f"topic describe t --json {where}")
        assert {len(one["replicas"]) for one in json.loads(told.stdout)["partitions"]} == {3}


def lacks(all_three: Machines) -> list[dict[str, Any]]:
    return [one for one in all_three.lines(1) if one["event"] == "no connection to a peer"]


def test_another_machines_file_is_refused(installed: Installed, tmp_path: Path) -> None:
    with machines(installed, tmp_path) as all_three:
        files = by_init(all_three)
        refused = all_three.run(all_three.net.machines[0], f"node start --config {files[1]}")
        assert refused.returncode == 2
        assert "node.id = 2: this is the machine of node 1" in refused.stderr
