"""How another terminal finds a cluster."""

from pathlib import Path

import pytest

from cluster import state
from cluster.state import NodeNow, NodeState, State, StateError

NOW = State(
    launcher_pid=1,
    control=Path("/run/c.sock"),
    nodes={1: NodeNow(NodeState.RUNNING, 11), 2: NodeNow(NodeState.KILLED, 12)},
)


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "cluster.json").write_text("{}")
    return path


def test_the_state_is_read_while_the_launcher_lives(tmp_path: Path) -> None:
    with state.launcher_lock(tmp_path):
        with pytest.raises(StateError, match="is only just starting"):
            state.read(tmp_path)
        state.write(tmp_path, NOW)
        assert state.read(tmp_path) == NOW
        (tmp_path / "state.json").write_text("[]")
        with pytest.raises(StateError, match="is damaged"):
            state.read(tmp_path)
    state.write(tmp_path, NOW)
    with pytest.raises(StateError, match="no cluster is running in"):
        state.read(tmp_path)


@pytest.mark.parametrize("follow", [True, False])
def test_the_one_here_is_meant_whether_it_runs_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    """A folder's own cluster is meant even if it is stopped and another one runs."""
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match="no cluster here; start one with: evenkeel up"):
        state.find(None, env, follow=follow)
    here, there = made(tmp_path / "data"), made(tmp_path / "there")
    state.remember(there, env)
    assert state.find(None, env, follow=follow) == (here, False)
    with state.launcher_lock(there):
        assert state.find(None, env, follow=follow) == (here, False)
        with state.launcher_lock(here):
            assert state.find(None, env, follow=follow) == (here, False)
    assert state.find(Path("there"), env, follow=follow) == (there, False)


def test_the_last_one_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(tmp_path / "home")}
    there = made(tmp_path / "there")
    state.remember(there, env)
    monkeypatch.chdir("/")
    assert state.find(None, env, follow=True) == (there, True)
    with pytest.raises(StateError, match="no cluster here"):
        state.find(None, {}, follow=True)


def test_what_changes_something_does_not_follow_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(tmp_path / "home")}
    there = made(tmp_path / "there")
    state.remember(there, env)
    monkeypatch.chdir("/")
    with pytest.raises(StateError, match="no cluster here; start one"):
        state.find(None, env, follow=False)
    with (
        state.launcher_lock(there),
        pytest.raises(StateError, match=f"does not guess .* one is running: --data {there}"),
    ):
        state.find(None, env, follow=False)


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="holds no cluster; start one with: evenkeel up --data"):
        state.find(tmp_path, {}, follow=True)
