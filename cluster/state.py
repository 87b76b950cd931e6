"""What runs now, as other terminals find it: `state.json` in the data directory.

The launcher writes it, whole and atomically, at every change, and holds a lock beside it
(flock(2)) as long as it lives: the lock, not a number in a file, says that a cluster is running.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

STATE_BYTES_MAX: Final = 1024 * 1024
DEFAULT_DATA_DIR: Final = Path("data")


class StateError(RuntimeError):
    """There is no such cluster, or it does not run, or it already runs; the message says which."""


class NodeState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    EXITED = "exited"


@attrs.frozen
class NodeNow:
    state: NodeState
    pid: int


@attrs.frozen(kw_only=True)
class State:
    launcher_pid: int
    control: Path
    nodes: Mapping[int, NodeNow]


def write(data_dir: Path, state: State) -> None:
    value = {
        "launcher_pid": state.launcher_pid,
        "control": str(state.control),
        "nodes": {
            str(node): {"state": now.state, "pid": now.pid} for node, now in state.nodes.items()
        },
    }
    draft = data_dir / "state.json.tmp"
    draft.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    draft.replace(data_dir / "state.json")


def read(data_dir: Path) -> State:
    """The state of the cluster that runs in this directory.

    Raises:
        StateError: if none does.
    """
    if not is_running(data_dir):
        raise StateError(
            f"no cluster is running in {data_dir}; start it with: evenkeel up{_named(data_dir)}"
        )
    try:
        with (data_dir / "state.json").open("rb") as file:
            value: Any = json.loads(file.read(STATE_BYTES_MAX))
        return State(
            launcher_pid=int(value["launcher_pid"]),
            control=Path(value["control"]),
            nodes={
                int(node): NodeNow(NodeState(now["state"]), int(now["pid"]))
                for node, now in value["nodes"].items()
            },
        )
    except FileNotFoundError as error:
        raise StateError(f"the cluster in {data_dir} is only just starting") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{data_dir / 'state.json'} is damaged ({error})") from error


def _named(data_dir: Path) -> str:
    """What a command must be told to mean this directory."""
    return "" if data_dir.absolute() == DEFAULT_DATA_DIR.absolute() else f" --data {data_dir}"


@contextmanager
def launcher_lock(data_dir: Path) -> Iterator[None]:
    """Be the one launcher of this directory.

    Raises:
        StateError: if another one is.
    """
    with (data_dir / "launcher.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateError(
                f"a cluster is already running in {data_dir}; look at it with: evenkeel status, "
                "or choose another --data directory"
            ) from error
        yield


def is_running(data_dir: Path) -> bool:
    try:
        with (data_dir / "launcher.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


class Found(NamedTuple):
    """`followed`: neither given nor here, but the one started last."""

    path: Path
    followed: bool = False


def find(given: Path | None, env: Mapping[str, str], *, follow: bool) -> Found:
    """The directory meant: the one given, else ./data, else with `follow` the one started last.

    A ./data that is there is meant, whether or not its cluster runs: another one must not be taken
    for it because that one happens to run.

    Raises:
        StateError: if there is none.
    """
    if given is not None:
        if not (given / "cluster.json").exists():
            raise StateError(
                f"{given} holds no cluster; start one with: evenkeel up --data {given}"
            )
        return Found(given.absolute())
    here = DEFAULT_DATA_DIR.absolute()
    if (here / "cluster.json").exists():
        return Found(here)
    pointer = _latest_path(env)
    if pointer is not None and pointer.exists():
        latest = Path(pointer.read_text(encoding="utf-8").strip())
        if follow and (latest / "cluster.json").exists():
            return Found(latest, followed=True)
        if is_running(latest):
            raise StateError(
                "no cluster here, and a command that changes something does not guess which one "
                f"you mean; one is running: --data {latest}"
            )
    raise StateError("no cluster here; start one with: evenkeel up, or name its --data directory")


def remember(data_dir: Path, env: Mapping[str, str]) -> None:
    """Let `find` find this directory from anywhere.

    Raises:
        OSError: if the user's state directory cannot be written.
    """
    pointer = _latest_path(env)
    if pointer is not None:
        pointer.parent.mkdir(parents=True, exist_ok=True)
        draft = pointer.with_name(f"latest.{os.getpid()}")
        draft.write_text(f"{data_dir.absolute()}\n", encoding="utf-8")
        draft.replace(pointer)


def _latest_path(env: Mapping[str, str]) -> Path | None:
    """XDG base directory specification: what should persist between runs, yet is not data."""
    if env.get("XDG_STATE_HOME"):
        return Path(env["XDG_STATE_HOME"]) / "evenkeel" / "latest"
    if env.get("HOME"):
        return Path(env["HOME"]) / ".local" / "state" / "evenkeel" / "latest"
    return None
