"""`evenkeel machine` and `init --processes`: what follows from a file, and words for refusals."""

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cli import generate, init
from cli.clusters.reach import Cluster
from cli.machine import turn
from cli.machine.commands import render
from cli.machine.turn import Machine
from cli.main import run
from cluster.machine.plan import read
from cluster.machine.supervisor import GRACE_S, MachineError
from runtime.config.config import load

NODES = "a:10.0.0.1,b:10.0.0.2,c:10.0.0.3"


def made(folder: Path, processes: str, *more: str) -> int:
    line = ["init", "--nodes", NODES, "--processes", processes, "--to", str(folder)]
    return run([*line, *more])


def test_init_writes_a_file_for_each_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tmp_path, "2,1,3", "--groups", "7") == 0
    said = capsys.readouterr().out
    assert "6 nodes on 3 machines" in said
    assert "9092 to 9094 for clients, 7092 to 7094 for the nodes" in said
    plans = {name: read(tmp_path / f"{name}.toml", {}) for name in "abc"}
    assert {name: [node.id for node in one.nodes] for name, one in plans.items()} == {
        "a": [1, 4],
        "b": [2],
        "c": [3, 5, 6],
    }
    configs = []
    for name, one in plans.items():
        for node in one.nodes:
            path = tmp_path / f"{name}-{node.id}.toml"
            path.write_text(one.text(node, len(one.nodes)))
            configs.append(load(path, {}))
    assert {one.node.zone for one in configs} == {"a", "b", "c"}
    assert len({one.node.cluster_id for one in configs}) == 1
    assert all(one.peers == configs[0].peers for one in configs)
    assert all(one.founders == (1, 2, 3, 4, 5, 6) for one in configs)
    assert all((one.groups.count, one.groups.replicas) == (7, 3) for one in configs)


def test_the_document_names_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, "2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["nodes"]
    assert [row["nodes"] for row in rows] == [[1, 4], [2, 5], [3, 6]]


def test_two_machines_cannot_keep_three_copies_apart_and_init_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["init", "--nodes", "a:10.0.0.1,b:10.0.0.2", "--processes", "2", "--to", str(tmp_path)]
    assert run(line) == 0
    assert "2 machines cannot keep 3 copies apart" in capsys.readouterr().out


def test_a_machine_without_a_name_gets_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["init", "--nodes", "10.0.0.1,x:10.0.0.2", "--processes", "1", "--to", str(tmp_path)]
    assert run(line) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["machine-1.toml", "x.toml"]
    assert read(tmp_path / "machine-1.toml", {}).name == "machine-1"


@pytest.mark.parametrize("processes", ["0", "2,2", "x", "", "-1", "2,2,2,2", "1.5", "20"])
def test_numbers_of_processes_that_make_no_sense(
    processes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tmp_path, processes) == 1
    said = capsys.readouterr().err
    assert "write one number, or one for each machine" in said or "begins with 1 to 32" in said
    assert not list(tmp_path.iterdir())


def test_processes_are_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "localhost:9092,localhost:9192,localhost:9292"
    assert run(["init", "--nodes", nodes, "--processes", "2", "--to", str(tmp_path)]) == 1
    assert "two of --nodes have the same host" in capsys.readouterr().err


@pytest.mark.parametrize("processes", [[1], [3], [2, 2, 2], [1, 3, 2], [4, 1]])
def test_neighbours_in_the_circle_are_on_different_machines(processes: list[int]) -> None:
    numbers = init.numbered(processes)
    assert [len(one) for one in numbers] == processes
    assert sorted(chain.from_iterable(numbers)) == list(range(1, sum(processes) + 1))
    assert [one[0] for one in numbers] == list(range(1, len(processes) + 1))


def test_show_tells_what_follows_and_checks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "2")
    text = (tmp_path / "b.toml").read_text().replace("/var/lib/evenkeel", str(tmp_path / "state"))
    file = tmp_path / "b.toml"
    file.write_text(text)
    capsys.readouterr()
    assert run(["machine", "show", "--config", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["node"] for row in document["nodes"]] == [2, 5]
    assert [row["zone"] for row in document["nodes"]] == ["b", "b"]
    assert not (tmp_path / "state").exists(), "nothing is written"
    assert run(["machine", "show", "--config", str(file), "--node", "5"]) == 0
    assert 'kafka = "10.0.0.2:9093"' in capsys.readouterr().out
    assert run(["machine", "show", "--config", str(file), "--node", "1"]) == 1
    assert "machine b runs node 2, 5" in capsys.readouterr().err
    folder = tmp_path / "etc"
    assert run(["machine", "show", "--config", str(file), "--to", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["node-2.toml", "node-5.toml"]
    capsys.readouterr()
    file.write_text(text.replace("[groups]", "[lease]\nduration_ms = 1\n[groups]"))
    assert run(["machine", "show", "--config", str(file)]) == 1
    assert "lease.duration_ms = 1" in capsys.readouterr().err


def test_what_is_not_running_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, "2")
    file = str(tmp_path / "a.toml")
    for action in ("status", "stop", "upgrade"):
        assert run(["machine", action, "--config", file]) == 1
        assert "machine a is not running here" in capsys.readouterr().err
    assert run(["machine", "start", "--config", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_machine_with_other_addresses_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 and not 2: an interface may come up later, so a service manager tries again."""
    line = ["init", "--nodes", "a:203.0.113.1,b:203.0.113.2", "--processes", "1"]
    assert run([*line, "--to", str(tmp_path), "--data-dir", str(tmp_path / "state")]) == 0
    assert run(["machine", "start", "--config", str(tmp_path / "a.toml")]) == 1
    assert "node 1: listen.kafka" in (said := capsys.readouterr().err)
    assert "it is no address of this machine" in said


def test_a_directory_with_a_long_name_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = "a:127.0.0.1:29092"
    folder = tmp_path / ("x" * 90)
    line = ["init", "--nodes", nodes, "--processes", "1", "--to", str(tmp_path)]
    assert run([*line, "--data-dir", str(folder)]) == 0
    assert run(["machine", "start", "--config", str(tmp_path / "a.toml")]) == 1
    assert "is longer than 100" in capsys.readouterr().err


def test_a_unit_for_a_machine_leaves_nodes_the_time_that_the_supervisor_gives_them() -> None:
    unit = generate.unit(Path("/opt/evenkeel"), "bus", template=False, machine=True)
    assert "ExecStart=/opt/evenkeel machine start --config /etc/evenkeel/machine.toml\n" in unit
    assert "KillMode=mixed\n" in unit, "SIGTERM is for the supervisor, which ends its nodes"
    assert f"TimeoutStopSec={generate.GIVE_AWAY_S}\n" in unit
    assert generate.GIVE_AWAY_S > GRACE_S


# ---- draining and upgrading ----------------------------------------------------------------------


class Answers(Cluster):
    """A cluster of three machines that answers from memory; `a` gives its masters away at once."""

    def __init__(self, *, alive: str = "abc", paused: bool = False) -> None:
        super().__init__([])
        self.alive, self.paused = alive, paused
        self.draining: set[int] = set()
        self.asked: list[tuple[int, bool]] = []

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        if path == "/admin/drain":
            self.asked.append((body["node"], body["draining"]))
            (self.draining.add if body["draining"] else self.draining.discard)(body["node"])
            return {"version": 1}
        return self.balancer() if path == "/balancer" else self.nodes()

    def nodes(self) -> Mapping[str, Any]:
        machines = {"a": [1, 4], "b": [2, 5], "c": [3, 6]}
        return {
            "misplaced": 0,
            "nodes": [
                {"id": node, "alive": name in self.alive}
                for name, nodes in machines.items()
                for node in nodes
            ],
            "machines": [
                {
                    "machine": name,
                    "nodes": nodes,
                    "alive": nodes if name in self.alive else [],
                    "draining": [],
                    "masters": 0 if set(nodes) <= self.draining else 4,
                    "groups": 9,
                    "crowded": [],
                    "problem": "",
                }
                for name, nodes in machines.items()
            ],
        }

    def balancer(self) -> Mapping[str, Any]:
        on = 2 if {1, 4} <= self.draining else 1
        groups = [
            {"group": 1, "members": [1, 2, 3], "master": on, "ideal": on},
            {"group": 2, "members": [2, 3, 4], "master": 3, "ideal": 3},
        ]
        return {"paused": self.paused, "policy": {"automatic": True}, "groups": groups}


def machine(cluster: Cluster, name: str = "a", step_s: float = 5.0) -> Machine:
    return Machine(cluster, name, lambda _line: None, step_s)


def test_a_drain_is_of_all_nodes_of_the_machine() -> None:
    cluster = Answers()
    turn.drain(machine(cluster))
    assert cluster.asked == [(1, True), (4, True)]
    turn.undrain(machine(cluster))
    assert cluster.asked[2:] == [(1, False), (4, False)]


@pytest.mark.parametrize(
    ("cluster", "name", "said"),
    [
        (Answers(), "x", "the cluster has no machine x; it knows a, b, c"),
        (Answers(alive="a"), "a", "no other machine runs"),
        (Answers(paused=True), "a", "the balancer is paused"),
    ],
)
def test_a_drain_that_cannot_be_is_refused(cluster: Answers, name: str, said: str) -> None:
    with pytest.raises(MachineError, match=said):
        turn.drain(machine(cluster, name))
    assert not cluster.asked


def test_a_drain_that_takes_too_long_says_what_is_left() -> None:
    with pytest.raises(MachineError, match="1 Paxos groups have their master there"):
        turn.drain(machine(Answers(), "c", step_s=0.1))


def test_an_upgrade_drains_restarts_and_ends_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Answers()
    monkeypatch.setattr(turn.health, "not_ready", lambda _address: "")
    steps = turn.upgrade(machine(cluster), [], lambda: cluster.asked.append((0, True)), force=False)
    assert cluster.asked == [(1, True), (4, True), (0, True), (1, False), (4, False)]
    assert list(steps) == ["drain", "restart", "give back"]


def test_an_upgrade_that_fails_ends_the_drain_too() -> None:
    cluster = Answers()

    def fails() -> None:
        raise MachineError("it does not come back")

    with pytest.raises(MachineError, match="does not come back"):
        turn.upgrade(machine(cluster), [], fails, force=False)
    assert cluster.draining == set()


def test_an_upgrade_is_refused_while_another_machine_is_away() -> None:
    cluster = Answers(alive="ac")
    with pytest.raises(MachineError, match="would have no majority: 1, 2"):
        turn.upgrade(machine(cluster), [], lambda: None, force=False)
    assert not cluster.asked


def test_machines_are_listed_for_people() -> None:
    text = render(Answers(alive="ab").nodes()["machines"])
    assert "a                 1,4           2/2         4             9  -" in text
    assert "c                 3,6           0/2         4             9  down" in text
    assert render([]).startswith("no node names its machine")
