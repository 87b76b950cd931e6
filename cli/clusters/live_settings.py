"""`evenkeel config live`: settings of running nodes that need no restart."""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from cli.clusters.kafka_commands import (
    FAILED,
    ClientError,
    add_cluster_options,
    open_admin,
    pairs,
    print_json,
    run_until_signal,
    table,
)
from evenkeel import Admin, EvenkeelError, Setting


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("changes_", nargs="*", metavar="NAME=VALUE", help="new values")
    text = "back to what it was when the node started"
    parser.add_argument("--reset", action="append", default=[], metavar="NAME", help=text)
    text = "only this node (default: every node)"
    parser.add_argument("--node", type=int, action="append", metavar="N", help=text)
    parser.add_argument("--dry-run", action="store_true", help="only let the nodes check it")
    add_cluster_options(parser, changes=True)
    parser.set_defaults(do=_run)


def _run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    return run_until_signal(partial(_live, options))


async def _live(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """Every node is asked, also if one fails: then the exit code is 1."""
    change = pairs(options.changes_, "setting")
    options.changes = bool((change or options.reset) and not options.dry_run)
    values: dict[int, dict[str, object]] = {}
    failures: dict[int, str] = {}
    async with open_admin(options) as admin:
        nodes = [one.id for one in (await admin.describe_cluster()).nodes]
        for node in options.node or nodes:
            if node not in nodes:
                raise ClientError(f"there is no node {node}; see: evenkeel node list")
            try:
                if change or options.reset:
                    await admin.alter_node_settings(
                        node, change, reset=options.reset, dry_run=options.dry_run
                    )
                values[node] = {name: one.value for name, one in (await _of(admin, node)).items()}
            except EvenkeelError as error:
                failures[node] = str(error)
    if options.json:
        said = {str(node): row for node, row in values.items()}
        print_json({"changed": options.changes, "nodes": said, "failed": failures})
    elif values:
        print(_table(values))
    if failures and not options.json:
        raise ClientError("; ".join(failures.values()))
    return FAILED if failures else 0


async def _of(admin: Admin, node: int) -> Mapping[str, Setting]:
    settings = await admin.node_settings(node)
    return {name: one for name, one in sorted(settings.items()) if not one.read_only}


def _table(values: Mapping[int, Mapping[str, object]]) -> str:
    names = sorted({name for row in values.values() for name in row})
    heads = ["setting", *(f"node {node}" for node in values)]
    rows = [[name, *(str(row.get(name, "-")) for row in values.values())] for name in names]
    return table(heads, rows)
