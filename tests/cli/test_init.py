"""`evenkeel init` and `evenkeel config`: files that nodes take, and words for what they refuse."""

import json
from pathlib import Path

import pytest

from cli import init
from cli import main as cli
from runtime.config.config import load


@pytest.mark.parametrize(
    ("nodes", "files", "kafka", "peer"),
    [
        ("a:10.0.0.1,b:10.0.0.2,c:10.0.0.3", "a b c", "10.0.0.1:9092", "10.0.0.1:7092"),
        ("10.0.0.1,10.0.0.2,10.0.0.3", "node-1 node-2 node-3", "10.0.0.1:9092", "10.0.0.1:7092"),
        ("a:bus-1:9192, b:bus-2, c:bus-3", "a b c", "bus-1:9192", "bus-1:7192"),
        ("[fd00::1]:9092,x:[fd00::2],[fd00::3]", "node-1 x node-3", "[fd00::1]:9092", None),
        ("localhost:9092,localhost:9192,localhost:9292", "node-1 node-2 node-3", None, None),
    ],
)
def test_the_files_are_those_of_one_cluster(
    nodes: str,
    files: str,
    kafka: str | None,
    peer: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["init", "--nodes", nodes, "--to", str(tmp_path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80 + len(str(tmp_path))
    configs = [load(tmp_path / f"{name}.toml", {}) for name in files.split()]
    assert [one.node.id for one in configs] == [1, 2, 3]
    assert len({one.node.cluster_id for one in configs}) == 1
    assert configs[0].peers == configs[1].peers == configs[2].peers
    assert all(one.founders == (1, 2, 3) for one in configs)
    assert all(one.listen.http.is_loopback for one in configs)
    assert kafka in (None, str(configs[0].listen.told_to_clients))
    assert peer in (None, str(configs[0].peers[configs[0].node.id]))
    apart = len({str(one.node.data_dir) for one in configs})
    assert apart == (3 if "localhost" in nodes else 1)


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ("", "0 nodes: a cluster begins with 1 to 32"),
        ("a:10.0.0.1,a:10.0.0.2", "nodes 1 and 2 have one name: a"),
        ("10.0.0.1,10.0.0.1", "nodes 1 and 2 would both listen on 10.0.0.1:9092"),
        ("10.0.0.1:9092,10.0.0.1:7092", "would both listen on 10.0.0.1:7092"),
        ("10.0.0.1,127.0.0.1", "node 2 is on 127.0.0.1, where the other machines cannot connect"),
        ("127.0.0.1,10.0.0.2", "node 1 is on 127.0.0.1, where the other machines cannot connect"),
        ("0.0.0.0", "nobody can connect to that"),
        ("a b:10.0.0.1", "'a b' is no name for a node"),
        ("10.0.0.1:99999", "is not the address of a machine"),
        ("10.0.0.1:80", "the ports beside it would be below 1"),
    ],
)
def test_what_makes_no_cluster(
    nodes: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["init", "--nodes", nodes, "--to", str(tmp_path / "new")]) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_what_nodes_would_refuse_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["init", "--nodes", "10.0.0.1", "--to", str(tmp_path), "--groups", "0"]
    assert cli.run(line) == 1
    assert "groups.count = 0: expected 1 to 1024" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert cli.run(line[:-2]) == 0
    assert cli.run(line[:-2]) == 1
    assert "has node-1.toml already; choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "word"), [(1, "only copy"), (2, "two nodes"), (4, "even")])
def test_few_nodes_and_even_numbers_get_words(count: int, word: str) -> None:
    assert word in " ".join(init.notes(count))
    assert init.notes(3) == init.notes(5) == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    assert cli.run(["init", "--nodes", "127.0.0.1,127.0.0.1:9192", "--to", str(tmp_path)]) == 0
    return tmp_path / "node-1.toml"


def test_the_origin_of_every_setting(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENKEEL_PAXOS__WINDOW", "4")
    more = ["--file", str(file), "--set", "log.level=debug"]
    capsys.readouterr()
    assert cli.run(["config", "show", "--json", *more]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["node.id"]["origin"] == str(file)
    assert rows["peers.2"]["origin"] == str(file)
    assert rows["paxos.window"]["origin"] == "environment variable EVENKEEL_PAXOS__WINDOW"
    assert rows["log.level"] == rows["log.level"] | {
        "value": "debug",
        "origin": "--set log.level=debug",
    }
    assert rows["lease.duration_ms"]["origin"] == "default"
    assert cli.run(["config", "show", "--origin", "--changed", *more]) == 0
    shown = capsys.readouterr().out
    assert "paxos.window = 4\n" in shown
    assert "lease.duration_ms" not in shown


def test_a_check_tells_every_problem(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.run(["config", "check", "--file", str(file)]) == 0
    told = capsys.readouterr().out
    assert "note: [peers] has 2 nodes, an even number" in told
    wrong = ["--set", "peers.2=10.0.0.2:7092", "--set", "paxos.windw=1"]
    assert cli.run(["config", "check", "--file", str(file), *wrong]) == 1
    assert "did you mean paxos.window?" in capsys.readouterr().out
    assert cli.run(["config", "check", "--json", "--file", str(file), *wrong[:2]]) == 1
    first, second = json.loads(capsys.readouterr().out)["problems"]
    assert first.endswith('set listen.peer = "0.0.0.0:7092"')
    assert "listen.kafka" in second
