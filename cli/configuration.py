"""`evenkeel config`: show a node's settings and where each comes from, and check them."""

import argparse
import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from cli.clusters import live_settings
from cli.clusters.kafka_commands import FAILED
from runtime.config import config
from runtime.config.contradictions import mistaken_machine
from runtime.config.fields import doc_of, show

EXAMPLE_NODE: Final = (
    "node.id=1",
    "node.cluster_id=example",
    "node.data_dir=data/node-1",
    "peers.1=127.0.0.1:7092",
)
"""Settings that a file must have; `evenkeel config` without a file shows all others."""
COLUMNS: Final = 80


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Without an action it shows, as `show`."""
    _add_options(parser)
    parser.set_defaults(do=_describe)
    actions = parser.add_subparsers(metavar="ACTION")

    def action(name: str, do: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=do)
        _add_options(sub, default=argparse.SUPPRESS)
        return sub

    showing = action("show", _show, "show every setting, its value and its meaning")
    showing.add_argument("--origin", action="store_true", help="where each value comes from")
    showing.add_argument("--changed", action="store_true", help="only what is not the default")
    action("check", _check, "check a node's configuration, as the node would, on its machine")
    text = "show settings of running nodes that need no restart, or change them until one"
    live = actions.add_parser("live", help=text, description=text[0].upper() + text[1:] + ".")
    live_settings.add_options(live)


def _add_options(parser: argparse.ArgumentParser, **default: Any) -> None:  # noqa: ANN401
    text = "a node's configuration file"
    parser.add_argument("--file", type=Path, metavar="TOML", help=text, **default)
    default = default or {"default": []}
    parser.add_argument("--set", action="append", metavar="section.key=value", **default)
    default = default if default["default"] is argparse.SUPPRESS else {}
    parser.add_argument("--json", action="store_true", help="for programs", **default)


def _loaded(options: Any) -> tuple[config.Config, dict[str, str]]:  # noqa: ANN401 (argparse's)
    sets = [*options.set]
    if options.file is None:
        sets = [*EXAMPLE_NODE, *sets]
    return config.load_with_origins(options.file, os.environ, sets)


def _describe(options: Any) -> int:  # noqa: ANN401 (argparse's)
    options.origin = options.changed = False
    return _show(options)


def _show(options: Any) -> int:  # noqa: ANN401 (argparse's)
    loaded, origins = _loaded(options)
    if not options.json and not options.origin and not options.changed:
        print(loaded.describe(), end="")
        return 0
    rows = _rows(loaded, origins)
    if options.changed:
        rows = {name: row for name, row in rows.items() if row["origin"] != "default"}
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for name, row in rows.items():
        print(f"{name} = {row['shown']}")
        text = f"{row['meaning']} ({row['origin']})" if options.origin else str(row["meaning"])
        print(textwrap.fill(text, COLUMNS, initial_indent="    ", subsequent_indent="    "))
    return 0


def _rows(loaded: config.Config, origins: dict[str, str]) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for section, section_class in config.SECTIONS.items():
        for field in attrs.fields(section_class):
            value = getattr(getattr(loaded, section), field.name)
            plain = value if isinstance(value, bool | int) else "" if value is None else str(value)
            rows[f"{section}.{field.name}"] = {
                "value": plain,
                "shown": show(value),
                "origin": origins.get(f"{section}.{field.name}", "default"),
                "meaning": doc_of(field),
            }
    for node, address in loaded.peers.items():
        rows[f"peers.{node}"] = {
            "value": str(address),
            "shown": show(address),
            "origin": origins.get(f"peers.{node}", "default"),
            "meaning": "where this node's peers connect"
            if node == loaded.node.id
            else "another node",
        }
    return rows


def _check(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """All problems, each with its cure; 1 if there is one."""
    problems: list[str] = []
    notes: list[str] = []
    try:
        loaded, _ = _loaded(options)
    except config.ConfigError as error:
        problems += error.problems
    else:
        mistake = mistaken_machine(loaded.node.id, loaded.peers)
        problems += [mistake] if mistake else []
        if len(loaded.peers) % 2 == 0:
            notes.append(
                f"[peers] has {len(loaded.peers)} nodes, an even number: one more would survive "
                "the loss of one more"
            )
    if options.json:
        print(json.dumps({"problems": problems, "notes": notes}, indent=2))
        return FAILED if problems else 0
    for one in [*problems, *(f"note: {note}" for note in notes)]:
        print(textwrap.fill(one, COLUMNS, initial_indent="- ", subsequent_indent="  "))
    if not problems:
        print("the configuration is right, as far as it can be seen from this machine")
    return FAILED if problems else 0
