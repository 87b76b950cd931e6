"""`evenkeel data`: what is in a stopped node's directory, and whether it is what was written."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from storage.disk import RealDisk
from storage.errors import DirectoryRefused
from storage.format import OFFSET_BITS, OFFSET_MASK, Place, segment_name
from storage.identity import IDENTITY_COPY_NAME, IDENTITY_NAME
from storage.inspection import Inspection, inspect

PROBLEMS_SHOWN_MAX: Final = 100


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, do, text in (
        ("verify", _verify, "check every record and entry; 1 if anything is not as it was written"),
        ("show", _show, "show what a start would find: segments, groups, promises, gaps"),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("directory", type=Path, metavar="DIR", help="of one stopped node")
        command.add_argument("--json", action="store_true", help="for programs")
        command.set_defaults(do=do)


def _inspect(options: Any, *, entries: bool) -> Inspection:  # noqa: ANN401 (argparse's)
    """Raises:
    DirectoryRefused: there is no such directory, or a node uses it.
    """
    directory: Path = options.directory
    if not directory.is_dir():
        raise DirectoryRefused(f"{directory}: there is no such directory")
    if not any((directory / name).exists() for name in (IDENTITY_NAME, IDENTITY_COPY_NAME)):
        nodes = sorted(path.name for path in directory.glob("node-*/") if path.is_dir())
        hint = f"; it holds those of {', '.join(nodes)}" if nodes else ""
        raise DirectoryRefused(f"{directory} is no data directory of a node{hint}")
    disk = RealDisk(directory)
    try:
        disk.lock()
        return inspect(disk, entries=entries)
    finally:
        disk.close()


def _verify(options: Any) -> int:  # noqa: ANN401 (argparse's)
    found = _inspect(options, entries=True)
    if options.json:
        print(json.dumps(_verdict(found), indent=2))
    else:
        print("\n".join(_verdict_lines(found)))
    return 1 if found.problems else 0


def _show(options: Any) -> int:  # noqa: ANN401 (argparse's)
    found = _inspect(options, entries=False)
    print(json.dumps(_everything(found), indent=2) if options.json else "\n".join(_lines(found)))
    return 0


# --- for people ----------------------------------------------------------------------------------


def _damage(found: Inspection) -> Iterator[str]:
    for problem in found.problems[:PROBLEMS_SHOWN_MAX]:
        yield f"damaged: {problem}"
    hidden = len(found.problems) - PROBLEMS_SHOWN_MAX
    if hidden > 0:
        yield f"... and {hidden} more"
    for hole in found.known_damage[:PROBLEMS_SHOWN_MAX]:
        yield f"damaged, and dealt with by the node: {hole}"
    if found.cut is not None:
        yield f"un-synced, a start will cut it off: {found.cut.file}, byte {found.cut.byte}"


def _verdict_lines(found: Inspection) -> Iterator[str]:
    yield from _damage(found)
    checked = f"{found.records} records and {found.entries} entries in {len(found.segments)} files"
    yield f"{checked}: {f'{len(found.problems)} problems' if found.problems else 'sound'}"


def _lines(found: Inspection) -> Iterator[str]:
    identity = found.identity
    if identity is None:
        yield "an empty directory"
        return
    yield f"cluster {identity.cluster}, node {identity.node}, incarnation {identity.incarnation}"
    yield f"{found.records} records, to {_say(found.end)}; synced at least to {_say(found.synced)}"
    yield ""
    yield f"{'SEGMENT':<24} {'BYTES':>12} {'USED':>12}  BEGUN IN INCARNATION"
    for one in found.segments:
        begun = "(not begun)" if one.incarnation is None else str(one.incarnation)
        yield f"{one.name:<24} {one.size:>12} {one.used:>12}  {begun}"
    yield ""
    yield f"{'GROUP':>5} {'SLOTS':>21} {'CHOSEN TO':>10} {'MISSING':>8}  {'PROMISED':<16} VOTES"
    for group in found.groups:
        slots = f"{group.first}-{group.highest}" if group.highest >= group.first else "none"
        promised = f"{group.promised.round} of node {group.promised.node}"
        votes = "yes" if group.voting else "no: it has lost something"
        yield (
            f"{group.group:>5} {slots:>21} {group.proven:>10} {group.missing:>8}  "
            f"{promised:<16} {votes}"
        )
    yield from _damage(found)


def _say(place: Place) -> str:
    if not place:
        return "nowhere"
    return f"{segment_name(place >> OFFSET_BITS)}, byte {place & OFFSET_MASK}"


# --- for programs --------------------------------------------------------------------------------


def _verdict(found: Inspection) -> dict[str, Any]:  # JSON
    return {
        "sound": not found.problems,
        "records": found.records,
        "entries": found.entries,
        "problems": list(found.problems),
        "known_damage": list(found.known_damage),
        "cut": None if found.cut is None else {"file": found.cut.file, "byte": found.cut.byte},
    }


def _everything(found: Inspection) -> dict[str, Any]:  # JSON
    identity = found.identity
    who = None
    if identity is not None:
        who = {
            "cluster": identity.cluster,
            "node": identity.node,
            "incarnation": identity.incarnation,
        }
    groups = [attrs.asdict(group) | {"promised": list(group.promised)} for group in found.groups]
    return {
        "identity": who,
        "segments": [attrs.asdict(one) for one in found.segments],
        "groups": groups,
        "synced": _say(found.synced),
        "end": _say(found.end),
        **_verdict(found),
    }
