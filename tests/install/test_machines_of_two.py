"""Three machines of two nodes each, from the wheel, as network namespaces: masters are even over
machines and over processes, and a whole machine is lost while a client writes."""

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks.machines.network import Namespace, Network, network
from tests.benchmarks.machines.machines_here import skip_without_machines
from tests.doses import FULL, ONLY_IN_FULL
from tests.install.conftest import Installed

pytestmark = pytest.mark.cluster

STEP_S = 150.0
SUBNET = "10.64.0."
BOOTSTRAP = f"{SUBNET}1:9092,{SUBNET}2:9092,{SUBNET}3:9092"
NAMES = ("a", "b", "c")
HTTP = "--http 127.0.0.1:8092,127.0.0.1:8093"
WRITER = Path(__file__).with_name("writer.py")
QUICK = {"EVENKEEL_BALANCER__DEAD_AFTER_MS": "3000"}


@attrs.define
class Machines:
    """What runs where; everything is stopped at the end."""

    net: Network
    installed: Installed
    folder: Path
    supervisors: dict[str, "subprocess.Popen[bytes]"] = attrs.Factory(dict)

    def place(self, name: str) -> Namespace:
        return self.net.machines[NAMES.index(name)]

    def file(self, name: str) -> Path:
        return self.folder / "files" / f"{name}.toml"

    def inside(self, place: Namespace, words: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net={place.path}", *words]

    def run(self, place: Namespace, line: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.inside(place, [self.installed.evenkeel, *line.split()]),
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**self.installed.env, **QUICK},
            timeout=STEP_S,
            check=False,
        )

    def json(self, name: str, line: str) -> Any:
        done = self.run(self.place(name), f"{line} --json")
        return json.loads(done.stdout) if done.stdout else None

    def start(self, name: str) -> None:
        words = [self.installed.evenkeel, "machine", "start", "--config", str(self.file(name))]
        with self.log(name).open("ab") as log:
            self.supervisors[name] = subprocess.Popen(
                self.inside(self.place(name), words),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**self.installed.env, **QUICK},
            )

    def lose(self, name: str) -> None:
        """The machine is off: everything on it ends at once."""
        supervisor = self.supervisors.pop(name)
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def by_machine(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        rows = self.json(name, f"machine list {HTTP}")
        return {row["machine"]: row for row in rows or ()}

    def masters(self, name: str) -> Counter[int]:
        """The masters of each node, as the nodes on one machine know them; none while any group is
        not where it belongs."""
        answer = self.json(name, f"node list {HTTP}")
        if answer is None or answer["misplaced"] or answer["moves_left"]:
            return Counter()
        return Counter({row["id"]: row["masters"] for row in answer["nodes"]})

    def until_even(self, seen_on: str, machines: str) -> None:
        """Masters are even over these machines, and over all of their processes."""
        deadline = time.monotonic() + STEP_S
        while True:
            masters = self.masters(seen_on)
            of = {name: self.numbers(name) for name in machines}
            counts = [masters[node] for nodes in of.values() for node in nodes]
            sums = [sum(masters[node] for node in nodes) for nodes in of.values()]
            if sum(sums) == GROUPS + 1 and max(counts) - min(counts) <= 1:
                assert max(sums) - min(sums) <= 1, masters
                return
            logs = {name: self.log(name).read_text()[-1500:] for name in NAMES}
            seen = self.json(seen_on, f"node list {HTTP}")
            assert time.monotonic() < deadline, json.dumps([masters, seen, logs])
            time.sleep(0.3)

    def numbers(self, name: str) -> tuple[int, int]:
        at = NAMES.index(name) + 1
        return at, at + len(NAMES)

    @contextmanager
    def written(self, first: int, seconds: float) -> Iterator[set[int]]:
        """A client writes meanwhile; afterwards the set has the numbers that were acknowledged."""
        words = [self.installed.python, str(WRITER), BOOTSTRAP, "t", str(first), str(seconds)]
        client = subprocess.Popen(
            self.inside(self.net.clients, words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.installed.env,
        )
        acknowledged: set[int] = set()
        with client:
            try:
                yield acknowledged
                out, errors = client.communicate(timeout=STEP_S)
            finally:
                client.kill()
        lines = out.split("\n")
        assert "failed 0" in lines, (lines[-3:], errors[-2000:])
        acknowledged |= {int(line) for line in lines if line.isdecimal()}
        assert len(acknowledged) > 50, "too little was written to show anything"


GROUPS = 12


@contextmanager
def cluster(installed: Installed, folder: Path) -> Iterator[Machines]:
    """All nodes run, and the topic t exists."""
    skip_without_machines()
    with network(len(NAMES)) as net:
        made = Machines(net, installed, folder)
        nodes = ",".join(f"{name}:{SUBNET}{number}" for number, name in enumerate(NAMES, 1))
        line = f"init --nodes {nodes} --processes 2 --groups {GROUPS} --to files"
        assert made.run(net.clients, line).returncode == 0
        for name in NAMES:
            state = str(folder / f"state-{name}")  # the machines of this test share their disk
            text = made.file(name).read_text().replace("/var/lib/evenkeel", state)
            made.file(name).write_text(text)
        try:
            for name in NAMES:
                made.start(name)
            deadline = time.monotonic() + STEP_S
            create = f"topic create t --partitions {GROUPS} --bootstrap {BOOTSTRAP} --timeout 60"
            while (
                done := made.run(net.clients, create)
            ).returncode and "ALREADY" not in done.stderr:
                assert time.monotonic() < deadline, done.stderr
            yield made
        finally:
            for name in list(made.supervisors):
                made.lose(name)


def read_back(machines: Machines) -> set[int]:
    where = f"topic consume t --raw --bootstrap {BOOTSTRAP} --timeout 60"
    done = machines.run(machines.net.clients, where)
    return {int(line) for line in re.findall(r"\d+", done.stdout)}


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_machine_is_lost_and_comes_back(installed: Installed, tmp_path: Path) -> None:
    with cluster(installed, tmp_path) as machines:
        machines.until_even("a", "abc")
        before = machines.by_machine("a")
        assert {name: row["nodes"] for name, row in before.items()} == {
            name: list(machines.numbers(name)) for name in NAMES
        }
        assert not any(row["crowded"] or row["problem"] for row in before.values())
        own = machines.json("b", f"machine status --config {machines.file('b')}")
        pids = [row["pid"] for row in own["nodes"]]
        with machines.written(1, 8.0) as acknowledged:
            time.sleep(2.0)
            machines.lose("b")
            deadline = time.monotonic() + 5.0
            while any(Path(f"/proc/{pid}").exists() for pid in pids):
                assert time.monotonic() < deadline, "a node outlived its machine's supervisor"
                time.sleep(0.05)
        machines.until_even("a", "ac")
        with machines.written(1_000_000, 1.0) as later:
            pass
        assert acknowledged | later <= read_back(machines)
        machines.start("b")
        machines.until_even("c", "abc")
        assert not any(row["crowded"] for row in machines.by_machine("c").values())


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_machines_are_upgraded_one_by_one_under_load(installed: Installed, tmp_path: Path) -> None:
    """Each machine is drained, its nodes and its supervisor's program are replaced, and no client
    notices."""
    with cluster(installed, tmp_path) as machines:
        machines.until_even("a", "abc")
        everything: set[int] = set()
        for at, name in enumerate(NAMES):
            own = f"--config {machines.file(name)}"
            before = machines.json(name, f"machine status {own}")
            with machines.written(1 + at * 1_000_000, 25.0) as acknowledged:
                upgraded = machines.run(machines.place(name), f"machine upgrade {own}")
                assert upgraded.returncode == 0, upgraded.stderr + upgraded.stdout
            after = machines.json(name, f"machine status {own}")
            assert after["pid"] == before["pid"], "a service manager sees no end"
            assert not {row["pid"] for row in after["nodes"]} & {
                row["pid"] for row in before["nodes"]
            }
            everything |= acknowledged
            machines.until_even(name, "abc")
        assert everything <= read_back(machines)
        drained = machines.run(machines.place("a"), f"machine drain c {HTTP}")
        assert "machine c is master of nothing" in drained.stdout, drained.stderr
        assert machines.by_machine("a")["c"]["masters"] == 0
        machines.run(machines.place("a"), f"machine undrain c {HTTP}")
        machines.until_even("a", "abc")
        machines.lose("b")
        refused = machines.run(
            machines.place("a"), f"machine upgrade --config {machines.file('a')}"
        )
        assert refused.returncode == 1
        assert "would have no majority" in refused.stderr


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_machine_gets_one_more_node(installed: Installed, tmp_path: Path) -> None:
    """As docs/machines.md says; and what would leave the data of a node behind is refused."""
    with cluster(installed, tmp_path) as machines:
        machines.until_even("a", "abc")
        add = f"node add 7 --peer {SUBNET}1:7094 --zone a {HTTP}"
        assert machines.run(machines.place("a"), add).returncode == 0
        for name in NAMES:
            text = machines.file(name).read_text().replace("nodes = [1, 4]", "nodes = [1, 4, 7]")
            machines.file(name).write_text(text)
        own = f"--config {machines.file('a')}"
        upgraded = machines.run(machines.place("a"), f"machine upgrade {own}")
        assert upgraded.returncode == 0, upgraded.stderr + upgraded.stdout
        deadline = time.monotonic() + STEP_S
        while not machines.masters("a")[7]:
            assert time.monotonic() < deadline, machines.log("a").read_text()[-2000:]
            time.sleep(0.5)
        assert not any(row["crowded"] for row in machines.by_machine("a").values())
        smaller = machines.file("a").read_text().replace("[1, 4, 7]", "[1, 4]")
        machines.file("a").write_text(smaller)
        refused = machines.run(machines.place("a"), f"machine show {own}")
        assert refused.returncode == 1
        assert "node 7 has data in" in refused.stderr
