"""Which cluster a command acts on, and what it says about that (ADR 60).

The first of these that names one: an option (`--context`, `--data`, `--bootstrap`, `--http`), the
variable EVENKEEL_CONTEXT, the folder (`./data`, whether its cluster runs or not), the current
context (`evenkeel context use`). Only a command that shows something may then follow the note about
the cluster started last, and says so. A command that changes something says which cluster that is.
A directory whose cluster is stopped means that cluster and no other: another cluster may have its
ports by now.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from cli.clusters import contexts
from cli.clusters.contexts import Context, ContextError
from cluster import state
from cluster.security.clients import PROPERTIES
from cluster.spec import ClusterSpec
from cluster.spec import read as spec_of
from runtime.config.fields import Address

DATA_CHANGES: Final = "the cluster's directory (./data)"
DATA_LOOKS: Final = "the cluster's directory (./data, or the one started last)"
CONTEXT: Final = "the cluster of this name (evenkeel context list)"
SECONDS_MAX: Final = 86_400.0
NUMBER_MAX: Final = 2**15 - 1
"""More partitions, nodes or copies than any cluster has; it fits all fields of the protocol."""


@attrs.frozen(kw_only=True)
class Target:
    """The cluster a command acts on. `path`: a local one's directory; `followed`: it was not named
    and is not in ./data; `why`: what named it."""

    where: str
    changes: bool
    path: Path | None = None
    followed: bool = False
    bootstrap: str = ""
    http: tuple[Address, ...] = ()
    cluster_id: str = ""
    context: str = ""
    why: str = ""
    command_config: Path | None = None
    """The context's."""


def add_options(
    parser: argparse.ArgumentParser,
    *,
    changes: bool,
    http: bool = False,
    bootstrap: bool = False,
    again: bool = False,
) -> None:
    """The options that name a cluster; `again`: some may have been given before a subcommand."""
    rest: dict[str, Any] = {"default": argparse.SUPPRESS} if again else {}
    where = parser.add_mutually_exclusive_group()
    context = argparse.SUPPRESS  # it may stand before the command, too
    where.add_argument("--context", metavar="NAME", help=CONTEXT, default=context)
    text = DATA_CHANGES if changes else DATA_LOOKS
    where.add_argument("--data", type=Path, metavar="DIR", help=text, **rest)
    if http:
        text = "ask these nodes of any cluster (or https://HOST:PORT)"
        where.add_argument("--http", metavar="HOST:PORT", help=text, **rest)
    if bootstrap:
        text = "any Kafka cluster, by its nodes"
        where.add_argument("--bootstrap", metavar="HOST:PORT", help=text, **rest)
    if http or bootstrap:
        text = "a properties file with security.protocol, sasl.username, ..."
        parser.add_argument("--command-config", type=Path, metavar="FILE", help=text, **rest)
    parser.set_defaults(changes=changes)


def timeout_option(parser: argparse.ArgumentParser, **default: Any) -> None:  # noqa: ANN401
    """For commands that ask nodes over HTTP; None: each node has the usual time."""
    text = "seconds to wait for the nodes' answers, in all"
    parser.add_argument("--timeout", type=seconds, metavar="S", help=text, **default)


def whole(text: str) -> int:
    """For options that are numbers of partitions, nodes or copies."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"write a number from 0 to {NUMBER_MAX}, not '{text}'")
    return value


def seconds(text: str) -> float:
    """For `--timeout`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"write seconds, up to {SECONDS_MAX:g}, not '{text}'")
    return value


def of(options: Any) -> Target:  # noqa: ANN401 (argparse's)
    """The cluster that is meant; `options.changes`: whether to change it.

    Raises:
        ContextError: there is no such context, or two clusters are named.
        StateError: nothing names a cluster.
    """
    before: Target | None = getattr(options, "chosen", None)
    if before is None:
        before = options.chosen = _found(options, os.environ)
        if before.followed:
            _say(f"{before.where}, the one started last")
        elif before.context and before.why != "--context":
            _say(f"{before.where}, named by {before.why}")
    return before


def _found(options: Any, env: Mapping[str, str]) -> Target:  # noqa: ANN401 (argparse's)
    changes = bool(getattr(options, "changes", False))
    named = {
        name: value
        for name in ("context", "data", "bootstrap", "http")
        if (value := getattr(options, name, None)) is not None
    }
    if len(named) > 1:
        both = " and ".join(f"--{name}" for name in named)
        raise ContextError(f"{both} name two clusters: give one of them")
    if "context" in named:
        return _of_context(contexts.read(env).named(named["context"]), changes, "--context")
    if "bootstrap" in named:
        text = contexts.checked_bootstrap(named["bootstrap"])
        where = f"the cluster at {text}"
        return Target(where=where, changes=changes, bootstrap=text, why="--bootstrap")
    if "http" in named:
        addresses = contexts.http_addresses(named["http"])
        where = f"the cluster at {','.join(map(str, addresses))}"
        return Target(where=where, changes=changes, http=addresses, why="--http")
    if "data" in named:
        return _local(state.find(named["data"], env, follow=False), changes, "--data")
    return _implied(changes, env)


def _implied(changes: bool, env: Mapping[str, str]) -> Target:
    """The cluster that is meant where no option names one."""
    if env.get(contexts.VARIABLE):
        context = contexts.read(env).named(env[contexts.VARIABLE])
        return _of_context(context, changes, contexts.VARIABLE)
    if not (state.DEFAULT_DATA_DIR / "cluster.json").exists():
        known = contexts.read(env)
        if known.current:
            context = known.named(known.current)
            return _of_context(context, changes, "evenkeel context use")
    return _local(state.find(None, env, follow=not changes), changes, "this folder")


def _local(found: state.Found, changes: bool, why: str) -> Target:
    where = f"the cluster of {found.path}"
    return Target(where=where, changes=changes, path=found.path, followed=found.followed, why=why)


def _of_context(context: Context, changes: bool, why: str) -> Target:
    if context.data is not None and not (context.data / "cluster.json").exists():
        raise ContextError(f"{context.told}: {context.data} holds no cluster any more")
    return Target(
        where=context.told,
        changes=changes,
        path=context.data,
        bootstrap=context.bootstrap,
        http=context.http,
        cluster_id=context.cluster_id,
        context=context.name,
        why=why,
        command_config=context.command_config,
    )


def running(options: Any) -> tuple[ClusterSpec, state.State]:  # noqa: ANN401 (argparse's)
    """The local cluster that is meant, which must be running.

    Raises:
        StateError: if there is none, or it is not running.
        ContextError: if a cluster on other machines is meant.
    """
    target = of(options)
    if target.path is None:
        raise ContextError(
            f"{target.where}: this command controls the processes of a cluster that evenkeel up "
            "runs on this machine; on other machines use their service manager (docs/operations.md)"
        )
    now = state.read(target.path)
    spec = spec_of(target.path)
    check_identity(target, spec.cluster_id)
    return spec, now


def settings_file(options: Any) -> Path | None:  # noqa: ANN401 (argparse's)
    """The administrator's settings of the secure cluster on this machine that is meant."""
    path = of(options).path
    if path is None:
        return None
    spec = spec_of(path)
    return spec.security.clients / PROPERTIES if spec.secure else None


def check_identity(target: Target, cluster_id: str) -> None:
    """Raises:
    ContextError: if another cluster is there than when the context was made.
    """
    if target.cluster_id and cluster_id != target.cluster_id:
        raise ContextError(
            f"another cluster ({cluster_id}) answers for {target.where}; if that is right: "
            f"evenkeel context add {target.context} --replace ..."
        )


def changed(options: Any) -> str | None:  # noqa: ANN401 (argparse's)
    """What a command has changed, or may have; None for one that only shows something."""
    chosen: Target | None = getattr(options, "chosen", None)
    return chosen.where if chosen is not None and chosen.changes else None


def _say(line: str) -> None:
    print(f"evenkeel: {line}", file=sys.stderr)
