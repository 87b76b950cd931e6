"""`evenkeel cluster version`: what may be written to the logs, what each node reads, raising it."""

import argparse
import json
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from cli.clusters import reach
from cli.clusters import target as chosen

COLUMNS: Final = 80


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    text = "show the cluster version and what each node reads, raise or hold it"
    sub = actions.add_parser("version", help=text, description=text[0].upper() + text[1:] + ".")
    sub.set_defaults(do=run, changes=False)
    one = sub.add_mutually_exclusive_group()
    raising = "raise it now: nodes of older versions can then no longer take part"
    one.add_argument("--set", type=int, metavar="N", dest="wanted", help=raising)
    one.add_argument("--hold", action="store_true", help="never raise it automatically")
    one.add_argument("--release", action="store_true", help="the opposite of --hold")
    sub.add_argument("--json", action="store_true", help="for programs")
    chosen.timeout_option(sub)
    chosen.add_options(sub, changes=True, http=True)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    body: dict[str, object] | None = None
    if options.wanted is not None:
        body = {"set": options.wanted}
    elif options.hold or options.release:
        body = {"hold": options.hold}
    options.changes = body is not None  # then the cluster must be named, and is told
    cluster = reach.of(options)
    if body is not None:
        cluster.ask("POST", "/admin/cluster-version", body)
    view = cluster.ask("GET", "/cluster/version")
    print(json.dumps(view, indent=2) if options.json else render(view))
    return 0


def render(view: Mapping[str, Any]) -> str:
    """For people: at most 80 columns wide."""
    lines = [f"cluster version {view['version']}{' (held)' if view['held'] else ''}"]
    lines.append("node  software      reads")
    for row in view["nodes"]:
        reads = "unknown"
        if row["newest"] is not None:
            reads = f"cluster versions {row['oldest']} to {row['newest']}"
        software = row["software"] or ("unknown" if row["newest"] is None else "older")
        lines.append(f"{row['id']:>4}  {software:<12}  {reads}"[:COLUMNS])
    if view["version"] >= view["newest"]:
        return "\n".join(lines)
    following = view["version"] + 1
    if view["waits_for"]:
        lines.append(_wrapped(f"cluster version {following} waits: {view['waits_for']}"))
    else:
        lines.append(_wrapped(f"cluster version {following} comes by itself: every node reads it"))
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent="  ")
