"""The command line: each error is reported in one line, with an exit code that is not zero."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli import main as cli
from cli import topic_changes
from cluster import health, state
from evenkeel import TopicDescription
from evenkeel.admin.descriptions import Setting
from runtime.config.config import load


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["kill"], "the following arguments are required: N"),
        (["kill", "two"], "invalid int value: 'two'"),
        (["balance", "fly"], "invalid choice: 'fly'"),
        (["balance", "move"], "the following arguments are required: G"),
        (["balance", "--even", "--pause"], "not allowed with argument"),
        (["up", "-n"], "expected one argument"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.run(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status"], "no cluster here; start one with: evenkeel up"),
        (["kill", "1", "--data", "x"], "x holds no cluster; start one with: evenkeel up --data x"),
        (["balance", "--even"], "no cluster here"),
        (["up", "-n", "0"], "0 nodes: a local cluster has 1 to 32"),
        (["up", "--set", "paxos.windw=1", "--free-ports"], "did you mean paxos.window?"),
        (["up", "--groups", "0", "--free-ports"], "groups.count = 0: expected 1 to 1024"),
        (["config", "--set", "lease.duration_ms=1"], "lease.duration_ms = 1: expected 100 to"),
        (["config", "--file", "none.toml"], "none.toml: cannot be read: No such file"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 1
    told = capsys.readouterr().err
    assert message in told
    assert told.startswith("evenkeel: ")
    assert "Traceback" not in told


def test_a_cluster_that_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    Path("data/cluster.json").write_text("{}")
    assert cli.run(["status"]) == 1
    assert "no cluster is running in" in capsys.readouterr().err


CHANGES = (
    "topic create t",
    "topic delete t",
    "topic produce t",
    "topic consume t --group g",
    "group seek g --to end",
    "group delete g",
    "topic settings t retention.ms=1",
    "topic partitions t 4",
    "topic trim t --before end",
    "topic elect t",
    "topic reassign t --to 1,2",
    "kill 1",
    "pause 1",
    "resume 1",
    "restart 1",
    "rolling-restart",
    "balance --all-on 1",
    "balance --pause",
    "balance stop",
    "balance continue",
    "balance run",
    "balance move 1 2",
    "balance drain 1",
    "balance cancel",
    "balance policy evenness=weight",
    "node add",
    "node remove 1",
    "node replace 1",
)
LOOKS = (
    "topic list",
    "topic describe t",
    "topic consume t",
    "topic settings t",
    "topic reassign t",
    "group list",
    "group describe g",
    "status",
    "health",
    "doctor",
    "debug bundle",
    "wait",
    "balance",
    "balance show",
    "balance plan",
    "balance policy",
    "node list",
    "data usage",
)


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Path]:
    """Another cluster, which is running and was started last."""
    there = tmp_path / "another"
    there.mkdir()
    (there / "cluster.json").write_text("{}")
    state.remember(there, os.environ)
    with state.launcher_lock(there):
        yield there


@pytest.mark.parametrize("line", [*CHANGES, *LOOKS])
def test_a_stopped_cluster_here_is_meant_by_every_command(
    line: str, another: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("data").mkdir()
    Path("data/cluster.json").write_text("{}")
    assert cli.run(line.split()) == 1
    told = capsys.readouterr().err
    assert "no cluster is running in" in told
    assert str(another) not in told


@pytest.mark.parametrize("line", CHANGES)
def test_what_changes_something_wants_its_cluster_named(
    line: str, another: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line.split()) == 1
    assert f"does not guess which one you mean; one is running: --data {another}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("line", LOOKS)
def test_what_only_looks_says_whom_it_followed(
    line: str, another: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line.split()) == 1  # this one has no state yet
    followed, failed = capsys.readouterr().err.splitlines()
    assert followed == f"evenkeel: the cluster of {another}, the one started last"
    assert "is only just starting" in failed


def test_a_demo_does_not_touch_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    Path("data/cluster.json").write_text("{}")
    assert cli.run(["demo", "--data", "data"]) == 1
    assert "data already holds a cluster" in capsys.readouterr().err


def test_config_shows_what_a_node_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["config", "--set", "paxos.window=3"]) == 0
    path = tmp_path / "node.toml"
    path.write_text(capsys.readouterr().out)
    assert load(path, {}).paxos.window == 3
    assert cli.run(["config", "--file", str(path), "--set", "paxos.window=4"]) == 0
    assert "window = 4" in capsys.readouterr().out


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 0
    assert "usage: evenkeel" in capsys.readouterr().out


@pytest.mark.parametrize("room", ["topic", "group", "node", "context", "data", "generate"])
def test_a_command_without_its_action_prints_what_there_is(
    room: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([room]) == 2
    assert f"usage: evenkeel {room}" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["version"]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    "line",
    [
        "topic create t --partitions 3000000000",
        "topic create t --replication 70000",
        "topic create t --partitions x",
        "topic partitions t 3000000000",
        "topic reassign t --to 1,x",
        "topic reassign t --to 1,3000000000",
        "topic trim t --before 1 --partition 3000000000",
        "topic consume t --partition 3000000000",
    ],
)
def test_numbers_that_no_cluster_has_are_refused_in_words(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.run([*line.split(), "--bootstrap", "127.0.0.1:1"])
    assert refused.value.code == 2
    assert "write a number from 0 to 32767, not" in capsys.readouterr().err


def test_an_argument_that_is_not_utf8_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Python passes such bytes on as half a surrogate pair, which nothing can encode."""
    words = ["topic", "produce", "t", "--key-separator", "\udce9", "--bootstrap", "127.0.0.1:1"]
    assert cli.run(words) == 1
    assert "this is not UTF-8: '\\udce9'" in capsys.readouterr().err


class Kafka:
    """As the brokers do, it resets what it does not know without a word."""

    async def describe_topic(self, name: str) -> TopicDescription:
        return TopicDescription(name=name, topic_id="", internal=False, partitions=())

    async def topic_settings(self, _name: str) -> dict[str, Setting]:
        return {"retention.ms": Setting("retention.ms", "5", False, False, False)}

    async def alter_topic_settings(self, *_: object, **__: object) -> None:
        pass


def test_a_setting_that_nobody_knows_is_reset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change was made, and then there was a traceback."""

    @asynccontextmanager
    async def opened(_options: object) -> AsyncIterator[Kafka]:
        yield Kafka()

    monkeypatch.setattr(topic_changes, "open_admin", opened)
    words = ["topic", "settings", "t", "retention.ms=5", "--reset", "no.such"]
    assert cli.run([*words, "--bootstrap", "127.0.0.1:1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["no.such"] == {"before": None, "now": None}


def test_who_interrupts_a_change_reads_where_it_may_have_been_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(health, "request", interrupted)
    assert cli.run(["balance", "pause", "--http", "127.0.0.1:1"]) == 130
    told = "interrupted; it may have been done [the cluster at 127.0.0.1:1]"
    assert told in capsys.readouterr().err
    assert cli.run(["status", "--http", "127.0.0.1:1"]) == 130
    assert capsys.readouterr().err == ""
