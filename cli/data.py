"""`evenkeel data`: inspect or verify a stopped node's directory, and show what fills it; or what
running nodes hold and will need.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from cli import usage as usage_cli
from cli.clusters import reach
from cli.clusters import target as chosen
from cluster import health
from paxos.ids import GroupId
from runtime.config.config import load
from runtime.config.sections import StorageSection
from storage.disk.files import RealDisk
from storage.errors import DirectoryRefused
from storage.format import OFFSET_BITS, OFFSET_MASK, Place, segment_name
from storage.identity import IDENTITY_COPY_NAME, IDENTITY_NAME
from storage.inspection import Inspection, inspect
from storage.unsafe_recovery import give_order
from storage.usage import Usage, usage

LOSS: Final = (
    "This can lose acknowledged messages and make earlier answers to clients untrue: the node may "
    "have cast votes that it has forgotten, and it will still count towards a majority. Use it "
    "only if all nodes and copies of directories that know more are gone for good. Use it on the "
    "node with the newest directory, and make a copy of that directory first."
)
PROBLEMS_SHOWN_MAX: Final = 100
PARTITIONS_SHOWN_MAX: Final = 100


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, do, text in (
        ("verify", _verify, "check every record, checkpoint and cold segment; 1 if one is damaged"),
        (
            "show",
            _show,
            "show what a start would find: checkpoints, segments, Paxos groups, promises",
        ),
        ("usage", _usage, "show what fills the disks, what they will need, and what bounds it"),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("--json", action="store_true", help="for programs")
        if name == "usage":
            text = "of one stopped node; without it: of the running local cluster"
            command.add_argument("directory", type=Path, nargs="?", metavar="DIR", help=text)
            text = "with DIR, the node's, for limits"
            command.add_argument("--config", type=Path, metavar="FILE", help=text)
            chosen.add_options(command, changes=False, http=True)
            chosen.timeout_option(command)
        else:
            command.add_argument("directory", type=Path, metavar="DIR", help="of one stopped node")
        command.set_defaults(do=do)
    text = (
        "let a stopped node's Paxos groups vote again at its next start, whatever it has forgotten"
    )
    command = commands.add_parser("unsafe-recover", help=text, description=f"{text}. {LOSS}")
    command.add_argument("directory", type=Path, metavar="DIR", help="of one stopped node")
    text = "only these Paxos groups, 0 is the registry (default: all that do not vote)"
    command.add_argument("--groups", type=_groups, metavar="N,N", help=text)
    text = "confirm that data may be lost; without it, the command only says what may be lost"
    command.add_argument("--lose-data", action="store_true", help=text)
    command.set_defaults(do=_unsafe_recover)


def _groups(text: str) -> frozenset[GroupId]:
    return frozenset(GroupId(int(word)) for word in text.split(","))


def _unsafe_recover(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """Leave an order for the node's next start."""
    with _opened(options) as disk:
        found = inspect(disk, entries=False)
        silent = [
            one.group for one in found.groups if found.problems or not one.voting or one.missing
        ]
        wanted = sorted(silent if options.groups is None else options.groups)
        names = ", ".join(map(str, wanted))
        if not wanted:
            print("all Paxos groups vote here: there is nothing to recover")
            return 1
        print(
            f"Paxos groups {names} of {options.directory} would vote again at its next "
            f"start.\n{LOSS}"
        )
        if not options.lose_data:
            print("nothing was done: add --lose-data to do it")
            return 2
        give_order(disk, wanted)
    print("ordered: now start the node; its log reports the outcome (unsafe-recovered)")
    return 0


@contextmanager
def _opened(options: Any, bytes_max: int = 0) -> Iterator[RealDisk]:  # noqa: ANN401 (argparse's)
    """Raises:
    DirectoryRefused: if there is no such directory, or a node uses it.
    """
    directory: Path = options.directory
    if not directory.is_dir():
        raise DirectoryRefused(f"{directory}: there is no such directory")
    if not any((directory / name).exists() for name in (IDENTITY_NAME, IDENTITY_COPY_NAME)):
        nodes = sorted(path.name for path in directory.glob("node-*/") if path.is_dir())
        hint = f"; it holds those of {', '.join(nodes)}" if nodes else ""
        raise DirectoryRefused(f"{directory} is not the data directory of a node{hint}")
    disk = RealDisk(directory, bytes_max)
    try:
        disk.lock()
        yield disk
    finally:
        disk.close()


def _inspect(options: Any, *, entries: bool) -> Inspection:  # noqa: ANN401 (argparse's)
    with _opened(options) as disk:
        return inspect(disk, entries=entries)


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


def _usage(options: Any) -> int:  # noqa: ANN401 (argparse's)
    if options.directory is None:
        return _cluster_usage(options)
    limits = None
    if options.config is not None:
        limits = load(options.config, {}).storage
    with _opened(options, limits.data_bytes_max if limits else 0) as disk:
        found = usage(disk)
    if options.json:
        document = attrs.asdict(found) | {"held": found.held}
        if limits is not None:
            document |= {"log_bytes": limits.log_bytes, "data_bytes_max": limits.data_bytes_max}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_usage_lines(found, limits)))
    return 0


def _cluster_usage(options: Any) -> int:  # noqa: ANN401 (argparse's)
    spec, running = reach.nodes_of(reach.of(options))
    ask = partial(usage_cli.collect, spec, running, timeout_s=options.timeout or health.TIMEOUT_S)
    uses = trio.run(ask)
    print(json.dumps(usage_cli.to_json(uses), indent=2) if options.json else usage_cli.render(uses))
    return 0


# --- for people ----------------------------------------------------------------------------------


def _damage(found: Inspection) -> Iterator[str]:
    for problem in found.problems[:PROBLEMS_SHOWN_MAX]:
        yield f"damaged: {problem}"
    hidden = len(found.problems) - PROBLEMS_SHOWN_MAX
    if hidden > 0:
        yield f"... and {hidden} more"
    for hole in found.known_damage[:PROBLEMS_SHOWN_MAX]:
        yield f"damaged, and already handled by the node: {hole}"
    if found.cut is not None:
        yield f"un-synced, a start will cut it off: {found.cut.file}, byte {found.cut.byte}"


def _verdict_lines(found: Inspection) -> Iterator[str]:
    yield from _damage(found)
    checked = f"{found.records} records and {found.entries} entries in {len(found.segments)} files"
    if found.checkpoints:
        checked += f", {len(found.checkpoints)} checkpoints"
    if found.partitions:
        checked += f", {sum(part.files for part in found.partitions)} cold segments"
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
    if found.checkpoints:
        yield f"{'CHECKPOINT':<58} {'BYTES':>12}  READS THE LOG FROM"
        for file in found.checkpoints:
            needs = "damaged" if file.needs is None else f"segment {file.needs}"
            yield f"{file.name:<58} {file.size:>12}  {needs}"
        yield f"a start reads the log from segment {found.started_at}"
        yield ""
    if found.partitions:
        yield f"{'COLD DATA OF PARTITION':<24} {'FILES':>6} {'BYTES':>15}  OFFSETS"
        for part in found.partitions[:PARTITIONS_SHOWN_MAX]:
            yield f"{part.uid:<24} {part.files:>6} {part.size:>15}  {part.start}-{part.end - 1}"
        hidden = len(found.partitions) - PARTITIONS_SHOWN_MAX
        if hidden > 0:
            yield f"... and of {hidden} more"
        yield ""
    yield f"{'PAXOS GROUP':>11} {'SLOTS':>15} {'CHOSEN TO':>10} {'MISSING':>8}  {'PROMISED':<16} "
    "VOTES"
    for group in found.groups:
        slots = f"{group.first}-{group.highest}" if group.highest >= group.first else "none"
        promised = f"{group.promised.round} of node {group.promised.node}"
        votes = "yes" if group.voting else "no: it has lost something"
        if not group.founded:
            votes = "no: its checkpoints are damaged, it needs one from a peer"
        yield (
            f"{group.group:>11} {slots:>15} {group.proven:>10} {group.missing:>8}  "
            f"{promised:<16} {votes}"
        )
    yield from _damage(found)


def _usage_lines(found: Usage, limits: StorageSection | None) -> Iterator[str]:
    yield f"{'HELD BY':<24} {'BYTES':>15}  BOUNDED BY"
    window = "storage.log_bytes" if limits is None else f"storage.log_bytes = {limits.log_bytes}"
    rows = (
        ("log", found.log, f"{window}, or what a checkpoint needs; {found.log_segments} files"),
        ("checkpoints", found.checkpoints, "two of each Paxos group"),
        ("cold data", found.cold_sum, f"the topics' retention; {len(found.cold)} partitions"),
        ("reserve", found.reserve, "storage.reserve_bytes"),
        ("other", found.other, "a few KB"),
    )
    for name, size, bound in rows:
        yield f"{name:<24} {size:>15}  {bound}"
    bound = "the disk"
    if limits is not None and limits.data_bytes_max:
        bound = f"storage.data_bytes_max = {limits.data_bytes_max}"
    yield f"{'all':<24} {found.held:>15}  {bound}: {found.free} bytes are free"
    if found.cold:
        yield ""
        yield f"{'COLD DATA OF PARTITION':<24} {'BYTES':>15}"
        largest = sorted(found.cold, key=lambda uid: (-found.cold[uid], uid))
        for uid in largest[:PARTITIONS_SHOWN_MAX]:
            yield f"{uid:<24} {found.cold[uid]:>15}"
        if len(largest) > PARTITIONS_SHOWN_MAX:
            yield f"... and of {len(largest) - PARTITIONS_SHOWN_MAX} smaller ones"


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
        "started_at": found.started_at,
        "checkpoints": [attrs.asdict(one) for one in found.checkpoints],
        "cold": [attrs.asdict(one) for one in found.partitions],
        "groups": groups,
        "synced": _say(found.synced),
        "end": _say(found.end),
        **_verdict(found),
    }
