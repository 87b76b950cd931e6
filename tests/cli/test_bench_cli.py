"""`evenkeel bench`: the options of the benchmarks, and how they are started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.suites.suite import BENCHMARKS
from cli import bench as bench_cli
from cli import main as cli
from cli.bench import NAMES, Peer, chosen_names
from cluster.programs import environment


def test_the_names_are_those_of_the_benchmarks() -> None:
    """The names are in two places because this package must not import the other."""
    assert tuple(one.name for one in BENCHMARKS) == NAMES


def test_a_family_is_all_of_its_sizes() -> None:
    assert chosen_names(None) == list(NAMES)
    assert chosen_names(["requests"]) == ["requests"]
    assert chosen_names(["single", "nodes"]) == ["single", "nodes-3", "nodes-5", "nodes-7"]
    assert "groups-300" in chosen_names(["groups"])


def test_peers_have_names() -> None:
    options = cli._parser().parse_args(
        ["bench", "--only", "single", "--peer", "kafka=a:9092,b:9092", "--peer", "red=c:1"]
    )
    assert options.peers == [Peer("kafka", "a:9092,b:9092"), Peer("red", "c:1")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--only", "everything"], "invalid choice: 'everything'"),
        (["--peer", "host:9092"], "is not NAME=HOST:PORT"),
        (["--peer", "a name=host:9092"], "is not NAME=HOST:PORT"),
        (["--peer", "evenkeel=host:9092"], "is the name of our own side"),
        (["--compare", "x", "--no-compare"], "not allowed with"),
    ],
)
def test_wrong_arguments_are_told(
    wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.run(["bench", *wrong])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_becomes_the_benchmarks(tmp_path: Path) -> None:
    """With its arguments and its exit code; nothing is measured here."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    words = ["bench", "--only", "single", "--peer", f"other={address}"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(os.environ),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("benchmarks: other does not answer: ")
    assert address in done.stderr


def test_the_module_is_there() -> None:
    assert BENCHMARKS[0].__module__.partition(".")[0] == bench_cli.ROOM
