"""What commands share that speak Kafka's protocol: which cluster, Ctrl-C, and how things look."""

import argparse
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from signal import SIGINT, SIGTERM
from typing import Any, Final, TypeAlias

import trio

from cli.clusters import logins, reach
from cli.clusters import target as chosen
from evenkeel import Admin, BrokerError, ClientConfig, TopicDescription
from evenkeel.lifetime import background
from wire.error_codes import ErrorCode

Action: TypeAlias = Callable[[Any], Awaitable[int]]
"""What a command does, with its options; returns the exit code."""
TIMEOUT_S: Final = 10.0
NODES_TRIED: Final = 3
"""Of this many nodes, all but one may hang before a command gives up."""
FAILED: Final = 1
"""The exit code when something was not done."""
UNKNOWN: Final = 3
"""The exit code of an answer that lacks something that may exist."""
DEGRADED: Final = 4
"""The exit code of `evenkeel health` where clients are served, but a node is missing."""
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as in shells."""


class ClientError(RuntimeError):
    """What was requested makes no sense; the message says why."""


def add_cluster_options(parser: argparse.ArgumentParser, *, changes: bool) -> None:
    """Any Kafka cluster by its addresses, or the one that runs here."""
    chosen.add_options(parser, changes=changes, bootstrap=True)
    text = f"seconds to wait for a cluster that does not answer ({TIMEOUT_S:g})"
    parser.add_argument("--timeout", type=chosen.seconds, default=TIMEOUT_S, metavar="S", help=text)
    parser.add_argument("--json", action="store_true", help="for programs")


def add_action(
    actions: Any,  # noqa: ANN401 (argparse's)
    name: str,
    work: Action,
    text: str,
    *,
    do: Callable[[Any], int] | None = None,
    changes: bool = False,
) -> argparse.ArgumentParser:
    """A command of a subject, such as `evenkeel acl list`, that asks a cluster. `do` begins `work`,
    if there is something to be done before there is an event loop."""
    sub: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    sub.set_defaults(do=do or run_work, work=work)
    add_cluster_options(sub, changes=changes)
    return sub


def config_of(options: Any) -> ClientConfig:  # noqa: ANN401 (argparse's)
    """A user wants to know soon if no node answers; one hung node is skipped. A secure cluster of
    this machine is administered with its own file, unless another is given.

    Raises:
        ConfigurationError: if the file of --command-config, or what it says, is wrong.
    """
    timeout_ms = max(1, round(options.timeout * 1000))
    one_node_ms = max(1, timeout_ms // NODES_TRIED)
    return ClientConfig.from_properties(
        logins.of(options),
        operation_timeout_ms=timeout_ms,
        connect_timeout_ms=one_node_ms,
        request_timeout_ms=one_node_ms,
    )


@asynccontextmanager
async def open_admin(options: Any) -> AsyncGenerator[Admin]:  # noqa: ANN401 (argparse's)
    """An admin client of the cluster that is meant.

    Raises:
        ClientError: if the directory's cluster is meant and another one answers.
    """
    async with Admin(reach.bootstrap_of(options), client=config_of(options)) as admin:
        target = chosen.of(options)
        meant = target.cluster_id
        if target.path is not None:
            meant = chosen.running(options)[0].cluster_id
        if meant:
            answers = (await admin.describe_cluster()).cluster_id
            if answers != meant:
                raise ClientError(
                    f"the nodes there belong to another cluster ({answers}, not {meant}): it has "
                    "their ports or addresses; name the one you mean with --data, --bootstrap or "
                    "--context"
                )
        yield admin


async def existing_topic(admin: Admin, name: str) -> TopicDescription:
    """Raises:
    ClientError: if there is no topic of this name.
    """
    try:
        return await admin.describe_topic(name)
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ClientError(f"there is no topic '{name}'; see: evenkeel topic list") from None
        raise


def run_work(options: Any) -> int:  # noqa: ANN401 (argparse's)
    return run_until_signal(partial(options.work, options))


def run_until_signal(work: Callable[[], Awaitable[int]], *, interrupted: int = INTERRUPTED) -> int:
    """Run an async command; Ctrl-C cancels it, so that it ends properly."""
    return trio.run(_until_signal, work, interrupted)


async def _until_signal(work: Callable[[], Awaitable[int]], interrupted: int) -> int:
    with trio.CancelScope() as scope:
        async with background() as nursery:
            await nursery.start(_cancel_on_signal, scope)
            return await work()
    return interrupted


async def _cancel_on_signal(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(SIGINT, SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def pairs(words: Sequence[str], what: str) -> dict[str, str]:
    """`name=value` words.

    Raises:
        ClientError: if one has no `=`.
    """
    for word in words:
        if "=" not in word:
            raise ClientError(f"{what} '{word}': write name=value")
    return dict(word.split("=", 1) for word in words)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as necessary; numbers are right-aligned."""
    cells = [["-" if one is None else str(one) for one in row] for row in rows]
    widths = [max(len(line[at]) for line in [list(heads), *cells]) for at in range(len(heads))]
    numeric = [
        bool(rows) and all(one is None or isinstance(one, int) for one in column)
        for column in zip(*rows, strict=True)
    ] or [False] * len(heads)

    def line(words: Sequence[str]) -> str:
        parts = [
            word.rjust(width) if right else word.ljust(width)
            for word, width, right in zip(words, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(heads), *(line(row) for row in cells)])


def text_of(data: bytes | None) -> str:
    """Bytes for people: what is not text is escaped."""
    return "" if data is None else data.decode("utf-8", "backslashreplace")


def json_of(name: str, data: bytes | None) -> Mapping[str, object]:
    """Bytes for a program: text if they are UTF-8, else hexadecimal under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}
