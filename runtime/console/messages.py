"""Messages with which one node collects reports of all others, to show the cluster (frame CONSOLE).

A browser only talks to the node that its page came from, and the HTTP ports of other machines are
on their loopback. So while there are watchers, that node asks the others over the peer links, and
they answer with what only they know: *state* every second (the groups they act for, their health,
their last samples of traffic), *data* every few seconds (ends of partitions, consumer groups).
Without watchers nothing is asked, an answer may be lost, and everything in it is limited.

Frame: u8 ask or tell, u8 state or data; an ask has the second of the last known sample (u64), a
tell is JSON.
"""

import json
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from balancer.registry.records import GROUPS_MAX, TOPIC_NAME_CHARS_MAX
from paxos.codec import PeerError

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
NUMBER_MAX: Final = 2**62
TEXT_CHARS_MAX: Final = 1024
SAMPLES_MAX: Final = 300
"""One per second: five minutes."""
PARTITIONS_MAX: Final = 10_000
OFFSETS_MAX: Final = 10_000
TOPICS_MAX: Final = 10_000
CONSUMERS_MAX: Final = 500
CONSUMERS_BYTES_MAX: Final = 1536 * 1024
"""The encoded reports of all consumer groups together: clients choose how long their names are, and
a report over ANSWER_BYTES_MAX costs the link."""
CLIENTS_MAX: Final = 20
"""The clients shown of each consumer group; the others are only counted."""

T = TypeVar("T")


class Op(IntEnum):
    ASK = 1
    TELL = 2


class What(IntEnum):
    STATE = 1
    DATA = 2


_HEAD: Final = struct.Struct(">BB")
_ASK: Final = struct.Struct(">BBQ")


class Ask(NamedTuple):
    what: What
    since: int = 0
    """Samples up to this second are known already."""


class Sample(NamedTuple):
    """What clients did in the second that ended at `second` of the node's boot clock."""

    second: int
    produced: int
    """Produce requests."""
    fetched: int
    """Fetch requests."""
    bytes_in: int
    bytes_out: int


class Acting(NamedTuple):
    """A group that the node is master of."""

    group: int
    lease_left_ms: int
    epoch: int
    behind: int
    """How many slots the slowest member still has to apply."""


@attrs.frozen(kw_only=True)
class State:
    """A node's report about itself."""

    incarnation: int
    second: int
    """The second of its boot clock at the time of this report."""
    not_ready: str
    """Why clients should not be sent to it, or ""."""
    version: str
    durability: str
    uptime_s: int
    rss_bytes: int
    disk_free_bytes: int
    """-1: not known yet."""
    disk_low: int
    connections: int
    acting: tuple[Acting, ...]
    samples: tuple[Sample, ...]


class Ends(NamedTuple):
    """Partitions of a topic that the node is master of: index, first offset, next offset."""

    topic: str
    indexes: list[int]
    starts: list[int]
    ends: list[int]


class Held(NamedTuple):
    """The bytes that the node has of a topic, and their growth per second; -1: not known yet."""

    topic: str
    bytes: int
    bytes_per_s: int


class Committed(NamedTuple):
    topic: str
    indexes: list[int]
    offsets: list[int]


@attrs.frozen(kw_only=True)
class Consumers:
    """A consumer group that the node coordinates."""

    name: str
    state: str
    kind: str
    group: int
    """The Paxos group that has it."""
    members: int
    clients: tuple[str, ...]
    committed: tuple[Committed, ...]


@attrs.frozen(kw_only=True)
class Data:
    ends: tuple[Ends, ...] = ()
    held: tuple[Held, ...] = ()
    consumers: tuple[Consumers, ...] = ()
    cut: int = 0
    """1: the report is not complete."""


# -- encoding -------------------------------------------------------------------------------------


def encode_ask(ask: Ask) -> bytes:
    return _ASK.pack(Op.ASK, ask.what, ask.since)


def encode_tell(told: State | Data) -> bytes:
    what = What.STATE if isinstance(told, State) else What.DATA
    text = json.dumps(_fields(told), separators=(",", ":"), default=_fields)
    return _HEAD.pack(Op.TELL, what) + text.encode()


def encoded_size(told: Consumers) -> int:
    return len(json.dumps(_fields(told), separators=(",", ":"), default=_fields))


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 # an attrs class
    return attrs.asdict(value, recurse=False)


# -- decoding -------------------------------------------------------------------------------------


def decode(body: memoryview) -> Ask | State | Data:
    """Decode a CONSOLE frame. Raises PeerError if it is malformed."""
    if not _HEAD.size <= len(body) <= _HEAD.size + ANSWER_BYTES_MAX:
        raise PeerError(f"{len(body)} bytes about the console")
    op, what = _HEAD.unpack_from(body)
    if what not in tuple(What):
        raise PeerError(f"a console's question of kind {what}")
    if op == Op.ASK and len(body) == _ASK.size:
        return Ask(What(what), _ASK.unpack(body)[2])
    if op != Op.TELL:
        raise PeerError("neither question nor answer of a console")
    try:
        value = json.loads(str(body[_HEAD.size :], "utf-8"))
        return _state(value) if what == What.STATE else _data(value)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PeerError(f"a console's answer: {error!r:.100}") from error


def _state(value: dict[str, Any]) -> State:
    numbers = ("incarnation", "second", "uptime_s", "rss_bytes", "disk_low", "connections")
    return State(
        **{name: _number(value[name]) for name in numbers},
        disk_free_bytes=_number(value["disk_free_bytes"], least=-1),
        not_ready=_text(value["not_ready"]),
        version=_text(value["version"]),
        durability=_text(value["durability"]),
        acting=_rows(value["acting"], GROUPS_MAX + 1, lambda row: Acting(*_exactly(row, 4))),
        samples=_rows(value["samples"], SAMPLES_MAX, lambda row: Sample(*_exactly(row, 5))),
    )


def _data(value: dict[str, Any]) -> Data:
    return Data(
        ends=_rows(value["ends"], TOPICS_MAX, _ends),
        held=_rows(value["held"], TOPICS_MAX, _held),
        consumers=_rows(value["consumers"], CONSUMERS_MAX, _consumers),
        cut=_number(value["cut"]),
    )


def _ends(row: Any) -> Ends:  # noqa: ANN401 # JSON
    topic, *columns = row
    return Ends(_text(topic, TOPIC_NAME_CHARS_MAX), *_columns(columns, 3, PARTITIONS_MAX))


def _held(row: Any) -> Held:  # noqa: ANN401
    topic, size, rate = row
    return Held(_text(topic, TOPIC_NAME_CHARS_MAX), _number(size), _number(rate, least=-1))


def _consumers(value: Any) -> Consumers:  # noqa: ANN401
    return Consumers(
        name=_text(value["name"]),
        state=_text(value["state"]),
        kind=_text(value["kind"]),
        group=_number(value["group"]),
        members=_number(value["members"]),
        clients=_rows(value["clients"], CLIENTS_MAX, _text),
        committed=_rows(value["committed"], TOPICS_MAX, _committed),
    )


def _committed(row: Any) -> Committed:  # noqa: ANN401
    topic, *columns = row
    return Committed(_text(topic, TOPIC_NAME_CHARS_MAX), *_columns(columns, 2, OFFSETS_MAX))


def _rows(value: Any, most: int, make: Callable[[Any], T]) -> tuple[T, ...]:  # noqa: ANN401
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("not a list, or too long")
    return tuple(map(make, value))


def _columns(value: list[Any], count: int, most: int) -> list[list[int]]:
    if len(value) != count or len({len(column) for column in value}) != 1 or len(value[0]) > most:
        raise ValueError("columns that do not match")
    return [[_number(one) for one in column] for column in value]


def _exactly(row: Any, count: int) -> list[int]:  # noqa: ANN401
    if not isinstance(row, list) or len(row) != count:
        raise ValueError(f"not a row of {count}")
    return [_number(one) for one in row]


def _number(value: Any, least: int = 0) -> int:  # noqa: ANN401
    if type(value) is not int or not least <= value <= NUMBER_MAX:
        raise ValueError("not a number")
    return value


def _text(value: Any, most: int = TEXT_CHARS_MAX) -> str:  # noqa: ANN401
    if not isinstance(value, str) or len(value) > most:
        raise ValueError("not a text")
    return value
