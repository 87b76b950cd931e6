"""`evenkeel bench`: the options of `python -m benchmarks`, and starting it.

The benchmarks are a layer above this package (docs/architecture.md) and import it, never the other
way round. So the options are here, where shell completion and the help find them; the benchmarks
read them from here too, and the command becomes that program.
"""

import argparse
import re
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from cluster.programs import become

ROOM: Final = "benchmarks"
REPLICATION_MAX: Final = 3
GROUP_COUNTS: Final = (1, 3, 6, 12, 24, 48, 96, 300)
NODE_COUNTS: Final = (3, 5, 7)
NAMES: Final = (
    "produce-100b",
    "produce-100b-idempotent",
    "produce-1kb",
    "produce-1kb-idempotent",
    "requests",
    "requests-2000",
    "client-1000",
    "single",
    "latency",
    "consume",
    *(f"groups-{count}" for count in GROUP_COUNTS),
    *(f"nodes-{count}" for count in NODE_COUNTS),
    "failover",
    "catchup",
)
"""The benchmarks in the order in which they run; benchmarks/suites/suite.py describes each."""
FAMILIES: Final = ("groups", "nodes")
"""Words that stand for several: all whose names begin with them."""
OURS: Final = "evenkeel"
GIVEN: Final = "brokers"
"""Systems that need no name: a fresh cluster, and the one at --bootstrap-servers."""


@attrs.frozen
class Peer:
    """Another system to be measured beside ours."""

    name: str
    bootstrap: str


def chosen_names(words: list[str] | None) -> list[str]:
    """The benchmarks that these words mean, in order; all if there are no words."""
    if words is None:
        return list(NAMES)
    prefixes = tuple(f"{word}-" for word in words if word in FAMILIES)
    return [name for name in NAMES if name in words or (prefixes and name.startswith(prefixes))]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="shorter windows and less data")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=(*NAMES, *FAMILIES),
        metavar="NAME",
        help="these alone: " + ", ".join((*NAMES, *FAMILIES)),
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to store the result")
    parser.add_argument(
        "--samples", type=Path, metavar="DIR", help="keep every request as a row of a file there"
    )
    compare = parser.add_mutually_exclusive_group()
    compare.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="an earlier result, instead of the last one of each benchmark",
    )
    compare.add_argument("--no-compare", action="store_true", help="compare with no earlier result")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT[,...]",
        help="measure these brokers instead; creates topics there, and deletes them again",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a properties file with security.protocol, sasl.username, ..., for these brokers",
    )
    parser.add_argument(
        "--peer",
        type=_peer,
        action="append",
        default=[],
        dest="peers",
        metavar="NAME=HOST:PORT[,...]",
        help="measure these brokers as well, in turns with ours; may be repeated",
    )
    parser.add_argument(
        "--replication",
        type=int,
        metavar="N",
        help=f"of topics on other brokers (their number, up to {REPLICATION_MAX})",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        help="another setting for our own nodes; may be repeated",
    )


def _peer(text: str) -> Peer:
    name, equals, bootstrap = text.partition("=")
    if not equals or not re.fullmatch(r"[\w.-]{1,20}", name) or ":" not in bootstrap:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=HOST:PORT, with a name of up to 20 letters, digits, . _ or -"
        )
    if name in (OURS, GIVEN):
        raise argparse.ArgumentTypeError(f"{name!r} is the name of our own side")
    return Peer(name, bootstrap)


def run(options: Any) -> NoReturn:  # noqa: ANN401 (argparse's)
    """Replace this process by the benchmarks, with the arguments as they were typed."""
    become(ROOM, *options.arguments[1:])
