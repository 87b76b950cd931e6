"""A replay's order: its command line, and its form in the archive."""

import argparse
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from pipeline.archive.logic import Place
from pipeline.bus import add_bus_options
from pipeline.session import add_session_options

ROWS_MAX: Final = 500_000
EVERYTHING: Final = (0, 1 << 63)
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
EPILOG: Final = """\
Rows keep their partition, key, value, headers and timestamp. Run the same command again to continue
where it stopped. On brokers that do not support write tokens (any but Evenkeel's), part of a round
that was killed is written twice.

exit codes: 0 everything is written, 1 the job failed and says why, 2 wrong arguments
"""


@attrs.frozen
class Order:
    """What to replay, as on the command line."""

    topics: Mapping[str, str]
    """Name in the archive -> name in the cluster. Empty: all topics, under their own names."""
    offsets: Mapping[Place, tuple[int, int]] | None = None
    """[start, end) of the wanted partitions; None: all of every partition."""
    since_ms: int | None = None
    until_ms: int | None = None
    by_key: bool = False
    latest_keys: bool = False
    allow_gaps: bool = False
    append: bool = False
    rows_max: int = ROWS_MAX

    def wants(self, place: Place) -> tuple[int, int] | None:
        if self.topics and place.topic not in self.topics:
            return None
        if self.offsets is None:
            return EVERYTHING
        return self.offsets.get(place)

    def document(self) -> dict[str, Any]:
        """The options that make it another replay if they change (`Any`: JSON)."""
        offsets = self.offsets or {}
        return {
            "topics": dict(self.topics),
            "offsets": None
            if self.offsets is None
            else [[*place, *bounds] for place, bounds in sorted(offsets.items())],
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "by_key": self.by_key,
            "latest_keys": self.latest_keys,
        }


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pipeline replay",
        description="An archive into topics, in offset order, exactly once even over restarts.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--from", required=True, metavar="DIRECTORY", dest="source")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        type=_topic,
        metavar="NAME[=NEW]",
        help="a topic of the archive, and its name in the cluster; may be repeated "
        "(default: all, under their own names)",
    )
    parser.add_argument(
        "--offsets",
        type=_offsets,
        metavar="JSON",
        help='only these: {"orders": {"0": [100, 250]}} has offsets 100 to 249 of orders/0',
    )
    parser.add_argument("--since", type=_time, metavar="TIME", help="only rows from this time on")
    parser.add_argument(
        "--until", type=_time, metavar="TIME", help="only older rows; 2026-11-22T18:00:00+01:00"
    )
    parser.add_argument(
        "--by-key",
        action="store_true",
        help="partitions by the rows' keys, for a topic with another number of them; rows of one "
        "old partition keep their order",
    )
    parser.add_argument(
        "--latest-keys", action="store_true", help="only the last row of every key (a snapshot)"
    )
    parser.add_argument("--allow-gaps", action="store_true", help="offsets may have no row")
    parser.add_argument("--append", action="store_true", help="topics may have records already")
    parser.add_argument(
        "--name",
        type=_name,
        help="of this replay: its progress is recorded under it (default: from the other options)",
    )
    parser.add_argument(
        "--rows-max", type=int, default=ROWS_MAX, metavar="N", help="in a round (%(default)s)"
    )
    add_bus_options(parser)
    add_session_options(parser)
    return parser


def _topic(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    return old, new or old


def _offsets(text: str) -> dict[Place, tuple[int, int]]:
    try:
        return {
            Place(topic, int(partition)): (int(bounds[0]), int(bounds[1]))
            for topic, partitions in json.loads(text).items()
            for partition, bounds in partitions.items()
        }
    except (ValueError, AttributeError, TypeError, IndexError, KeyError) as error:
        wanted = '{"orders": {"0": [100, 250]}}'
        raise argparse.ArgumentTypeError(f"{text!r} is not like {wanted}") from error


def _time(text: str) -> int:
    """Milliseconds since 1970; UTC unless the text has an offset."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 2026-11-22T18:00:00") from error
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def _name(text: str) -> str:
    if NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: letters, digits, '.', '_' and '-', up to 100")
    return text


def order_of(options: argparse.Namespace) -> Order:
    return Order(
        dict(options.topic),
        options.offsets,
        options.since,
        options.until,
        options.by_key,
        options.latest_keys,
        options.allow_gaps,
        options.append,
        options.rows_max,
    )
