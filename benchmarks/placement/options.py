"""The options of `python -m benchmarks.placement.placements`."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.machines import limits
from benchmarks.target import NODES

SAMPLES: Final = Path("bench-results") / "placements"
SIZES: Final = (100, 1_000, 10_000, 100_000)
SIZE_MAX: Final = 1_000_000
"""A record batch may have 1 MiB."""
PAIRS_MAX: Final = 1_000
READERS_MAX: Final = 8
GROUPS: Final = 12
"""Topics get a partition in each."""
GROUPS_MAX: Final = 1_024
NODES_MIN, NODES_MAX = 2, 9


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.placement.placements",
        description="Acknowledged messages a second with all masters on one node, and with masters "
        "evenly spread, in alternating order, by message size.",
    )
    parser.add_argument(
        "--sizes", nargs="+", type=_whole(1, SIZE_MAX), default=SIZES, metavar="BYTES"
    )
    parser.add_argument(
        "--pairs", type=_whole(1, PAIRS_MAX), default=5, help="(default %(default)s)"
    )
    parser.add_argument(
        "--limit",
        type=_limit,
        default=None,
        metavar="WHAT",
        help=f"limit of each node: {limits.WRITTEN}; network is "
        "in each direction, egress where nodes send (default: "
        "network, by message size, if this system allows it, else none)",
    )
    parser.add_argument(
        "--nodes",
        nargs="+",
        type=_whole(NODES_MIN, NODES_MAX),
        default=(NODES,),
        help="a cluster of each size; every group is on all nodes (default: 3)",
    )
    parser.add_argument(
        "--groups",
        nargs="+",
        type=_whole(1, GROUPS_MAX),
        default=(GROUPS,),
        help="and of each number of groups; topics get a partition in each (default: 12)",
    )
    parser.add_argument(
        "--readers",
        nargs="+",
        type=_whole(0, READERS_MAX),
        default=(0, 1),
        help="how many consumers read everything meanwhile, one number after the other "
        "(default: 0 1)",
    )
    _add_load(parser)
    parser.add_argument(
        "--samples", type=Path, default=SAMPLES, metavar="DIR", help="(default %(default)s)"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="SECTION.KEY=VALUE"
    )
    return parser.parse_args(arguments)


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="measured of each load (default %(default)s); the report needs whole ones",
    )
    parser.add_argument(
        "--warm-up", type=float, default=2.0, help="seconds before that (default %(default)s)"
    )
    parser.add_argument(
        "--client",
        choices=("requests", "producer"),
        default="requests",
        help="one record per request over raw sockets, or confluent-kafka as fast as possible",
    )
    parser.add_argument(
        "--connections",
        type=_whole(1, 10_000),
        help="of requests, shared evenly by the nodes that lead (default: by message size)",
    )
    parser.add_argument(
        "--rate", type=float, default=0.0, help="requests a second; 0: the next when one is done"
    )


def _whole(least: int, most: int) -> "partial[int]":
    return partial(_within, least, most)


def _within(least: int, most: int, text: str) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


def _limit(text: str) -> limits.Limit:
    try:
        return limits.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
