"""How a job finds the cluster, and other options for the data source."""

import argparse
from pathlib import Path
from typing import Final

FORMAT: Final = "evenkeel"


def add_bus_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("bus")
    group.add_argument(
        "--bootstrap", required=True, metavar="HOST:PORT,...", help="bootstrap servers"
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        type=_option,
        metavar="KEY=VALUE",
        help="an option of the data source (docs/spark.md), like kafka.security.protocol=SASL_SSL; "
        "may be repeated",
    )
    group.add_argument(
        "--options-from",
        "--command-config",
        metavar="FILE",
        help="a file with more of them, one per line: `ps` shows no passwords of a file",
    )


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not like KEY=VALUE")
    return key.strip(), value.strip()


def bus_options(options: argparse.Namespace) -> dict[str, str]:
    """The options of the data source; those on the command line win.

    Raises:
        SystemExit: the file cannot be read, or has a line that is not an option.
    """
    found: dict[str, str] = {}
    if options.options_from is not None:
        try:
            lines = Path(options.options_from).read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
            found.update(map(_option, kept))
        except OSError as error:
            raise SystemExit(f"--options-from {options.options_from}: {error}") from error
        except (UnicodeDecodeError, argparse.ArgumentTypeError):
            # the line may hold a password: it is not shown
            why = "a line is not like KEY=VALUE, or no text"
            raise SystemExit(f"--options-from {options.options_from}: {why}") from None
    found.update(options.option)
    found["kafka.bootstrap.servers"] = options.bootstrap
    return found
