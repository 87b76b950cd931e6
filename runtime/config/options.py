"""The command line of one node."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m node", description="Run one node of an Evenkeel cluster."
    )
    parser.add_argument("--config", type=Path, required=True, help="TOML file, see docs/")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        help="override one setting; may be repeated",
    )
    parser.add_argument("--parent-pid", type=int, help="stop when this parent process is gone")
    return parser.parse_args(argv)
