"""Which cluster a command acts on: options, the environment, the folder, the current context."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import context
from cli import main as cli
from cli.clusters import contexts
from cli.clusters import target as chosen
from cluster import state
from tests.cli.test_cli import CHANGES, LOOKS

Typed = Callable[..., str]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(contexts.VARIABLE, raising=False)


@pytest.fixture
def types(capsys: pytest.CaptureFixture[str]) -> Typed:
    def run(line: str, code: int = 0) -> str:
        got = cli.run(line.split())
        printed = capsys.readouterr()
        assert got == code, printed.err
        return printed.out if code == 0 else printed.err

    return run


def made(path: Path, cluster_id: str = "local-1") -> Path:
    path.mkdir(parents=True)
    nodes = [{"id": 1, "kafka": 1, "peer": 2, "http": 3}]
    value = {"cluster_id": cluster_id, "groups": 1, "nodes": nodes}
    (path / "cluster.json").write_text(json.dumps(value))
    return path


def where(types: Typed, more: str = "") -> str:
    means: str = json.loads(types(f"context show --json {more}"))["because_of"]
    return means


PROD = "context add prod --bootstrap 127.0.0.1:1,127.0.0.1:2 --http 127.0.0.1:3"


def test_contexts_are_added_listed_used_and_removed(types: Typed) -> None:
    said = types(PROD)
    assert said.startswith("context prod (127.0.0.1:1,127.0.0.1:2; http 127.0.0.1:3) was added")
    assert "it did not answer, so its cluster id is not known" in said
    assert "already; to change it, add --replace" in types(PROD, 1)
    assert "was added" in types(f"{PROD} --replace")
    types("context use prod")
    (row,) = json.loads(types("context list --json"))
    assert (row["context"], row["current"]) == ("prod", True)
    assert "127.0.0.1:1 and 1 more" in types("context list")
    assert "its cluster stays as it is" in types("context remove prod")
    assert json.loads(types("context list --json")) == []
    assert "no context 'prod' (there is none)" in types("topic list --context prod", 1)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("context add prod", "say how to reach the cluster: --bootstrap, --http, or --data"),
        ("context add -x --bootstrap a:1", "unrecognized"),
        ("context add ../x --bootstrap a:1", "a name has up to 64 letters"),
        ("context add p --bootstrap a:x", "'a:x' is not an address"),
        ("context add p --http a", "expected host:port"),
        ("context add p --data nowhere", "nowhere holds no cluster"),
        ("context use nobody", "there is no context 'nobody'"),
        ("context remove nobody", "there is no context 'nobody'"),
    ],
)
def test_what_cannot_be_a_context(
    line: str, complaint: str, types: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    if complaint == "unrecognized":
        with pytest.raises(SystemExit):
            cli.run(line.split())
    else:
        assert complaint in types(line, 1)


def test_a_damaged_file_says_what_to_do(types: Typed) -> None:
    contexts.path().parent.mkdir(parents=True)
    contexts.path().write_text("{")
    assert "mend it, or delete it and add the contexts again" in types("context list", 1)


def test_the_order_option_environment_folder_current_context(
    types: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("current", "env", "flag"):
        types(f"context add {name} --bootstrap 127.0.0.1:1")
    assert "no cluster here" in types("context show", 1)
    types("context use current")
    assert where(types) == "evenkeel context use"
    made(Path("data"))
    assert where(types) == "this folder"
    monkeypatch.setenv(contexts.VARIABLE, "env")
    assert where(types) == contexts.VARIABLE
    assert where(types, "--context flag") == "--context"
    assert "EVENKEEL_CONTEXT=env comes first in this shell" in types("context use current")
    monkeypatch.setenv(contexts.VARIABLE, "")
    assert "in this folder ./data comes first" in types("context use current")


@pytest.mark.parametrize("line", [*CHANGES, *LOOKS])
def test_a_stopped_cluster_of_the_folder_is_meant_though_a_context_is_current(
    line: str, types: Typed
) -> None:
    """Nor does any command fall on another one that runs."""
    there = made(Path("there"))
    types("context add other --data there")
    types("context use other")
    made(Path("data"))
    with state.launcher_lock(there):
        assert f"no cluster is running in {Path('data').absolute()}" in types(line, 1)


@pytest.mark.parametrize("line", [*CHANGES, *LOOKS])
def test_every_command_takes_a_context_before_or_behind(line: str, types: Typed) -> None:
    made(Path("data"))
    made(Path("there"))
    types("context add other --data there")
    expected = f"no cluster is running in {Path('there').absolute()}"
    head, _, rest = line.partition(" ")
    assert expected in types(f"{line} --context other", 1)
    assert expected in types(f"--context other {head} {rest}".strip(), 1)


def test_two_names_are_one_too_many(types: Typed) -> None:
    types("context add other --bootstrap 127.0.0.1:1")
    refused = types("--context other topic list --bootstrap 127.0.0.1:2", 1)
    assert "--context and --bootstrap name two clusters: give one of them" in refused


def test_every_bootstrap_address_is_asked_for_its_cluster(
    types: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client begins with whichever of them is there: one of another cluster is a mistake."""

    async def kafka_id(bootstrap: str, _login: object) -> str:
        return "blue" if bootstrap.endswith(":1") else "green"

    monkeypatch.setattr(context, "_kafka_id", kafka_id)
    refused = types("context add two --bootstrap 127.0.0.1:1,127.0.0.1:2", 1)
    assert "of different clusters: 127.0.0.1:1 is blue; 127.0.0.1:2 is green" in refused
    types("context add one --bootstrap 127.0.0.1:2,127.0.0.1:3")


def test_who_does_not_say_its_cluster_is_not_taken_for_it() -> None:
    target = chosen.Target(where="context prod", changes=True, cluster_id="blue", context="prod")
    for told in ("green", ""):
        with pytest.raises(contexts.ContextError, match="another cluster"):
            chosen.check_identity(target, told)
    chosen.check_identity(target, "blue")


def test_what_a_context_lacks_is_said_with_the_cure(types: Typed) -> None:
    types("context add kafka --bootstrap 127.0.0.1:1")
    refused = types("status --context kafka", 1)
    assert "evenkeel context add kafka --replace --http HOST:PORT" in refused
    refused = types("kill 1 --context kafka", 1)
    assert "controls the processes of a cluster that evenkeel up runs on this machine" in refused


def test_another_cluster_at_the_same_place_is_not_taken_for_it(types: Typed) -> None:
    there = made(Path("there"))
    types("context add other --data there")
    (there / "cluster.json").write_text((there / "cluster.json").read_text().replace("-1", "-2"))
    with state.launcher_lock(there):
        now = state.State(launcher_pid=1, control=there / "c", nodes={})
        state.write(there, now)
        refused = types("kill 1 --context other", 1)
    assert "another cluster (local-2) answers for context other" in refused


def test_who_changes_something_through_an_implied_context_reads_its_name(types: Typed) -> None:
    types("context add prod --bootstrap 127.0.0.1:1")
    types("context use prod")
    told = types("topic delete orders --timeout 0.2", 1)
    first, second = told.splitlines()
    assert first == "evenkeel: context prod (127.0.0.1:1), named by evenkeel context use"
    assert second.endswith("[context prod (127.0.0.1:1)]")


def test_the_file_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert contexts.path({"HOME": "/usr/me"}) == Path("/usr/me/.config/evenkeel/contexts.json")
    assert contexts.read({}) == contexts.Contexts()
    monkeypatch.delenv("XDG_CONFIG_HOME")
    with pytest.raises(contexts.ContextError, match="set HOME or XDG_CONFIG_HOME"):
        contexts.path({})
    assert chosen.changed(object()) is None
    assert os.environ.get("XDG_CONFIG_HOME") is None
