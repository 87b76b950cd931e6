"""What somebody did and saw: the lines of a history.

A history is what clients, and whoever looks at the nodes, wrote down while they used a cluster. It
holds no model of the system: `history.checker` asks only whether logs could have shown it to them.
A *key* is one log, a topic and a partition; the values that are sent to one key are unique.

The records of one process stand in the order in which it did things; only its sends may stand later
than they began, because their line is written when their outcome is known (`began_ns` orders them).
Times are nanoseconds of one clock that never goes back; 0 where nobody looked at the clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import attrs

UNKNOWN: Final = -1
"""The offset of what has none, or whose offset nobody was told."""


class Op(StrEnum):
    """What a record says. `value` and `offset` mean something else in each: docs/history.md."""

    SEND = "send"
    POLL = "poll"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    DRAINED = "drained"
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMIT = "commit"
    COMMITTED = "committed"
    CHAIN = "chain"
    MASTER = "master"
    FAULT = "fault"
    HEAL = "heal"


class Outcome(StrEnum):
    """`INVOKE`: it has begun; a later record of the same operation says how it ended, or none does.

    `FAIL` means *surely not done*, now or later; whoever does not know says `INFO`.
    """

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Key(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


NO_KEY: Final = Key("", 0)
"""Of a fault, which concerns everything."""


@attrs.define
class Record:
    op: Op
    process: str
    key: Key
    value: str | None = None
    offset: int = UNKNOWN
    outcome: Outcome = Outcome.OK
    began_ns: int = 0
    ended_ns: int = 0


class Needs(NamedTuple):
    """What a record that went well must carry."""

    value: bool = False
    offset: bool = False


NEEDS: Final[Mapping[Op, Needs]] = {
    Op.SEND: Needs(value=True),  # a producer is not always told the offset, not even when it is ok
    Op.POLL: Needs(offset=True),  # no value: it asked from this offset on and got nothing
    Op.ASSIGN: Needs(offset=True),
    Op.SUBSCRIBE: Needs(),
    Op.DRAINED: Needs(offset=True),
    Op.EARLIEST: Needs(offset=True),
    Op.LATEST: Needs(offset=True),
    Op.COMMIT: Needs(value=True, offset=True),
    Op.COMMITTED: Needs(value=True),  # a group that has committed nothing has no offset
    Op.CHAIN: Needs(value=True, offset=True),
    Op.MASTER: Needs(offset=True),
    Op.FAULT: Needs(value=True),
    Op.HEAL: Needs(),
}


def problem(record: Record) -> str:
    """What makes no sense in this record, or ""."""
    needs = NEEDS[record.op]
    if record.key == NO_KEY and record.op not in (Op.FAULT, Op.HEAL):
        return f"{record.op} needs a key"
    if needs.value and record.value is None:
        return f"{record.op} needs a value"
    if record.offset < UNKNOWN:
        return f"no offset is {record.offset}"
    if needs.offset and record.outcome == Outcome.OK and record.offset == UNKNOWN:
        return f"{record.op} needs an offset"
    if record.ended_ns and record.ended_ns < record.began_ns:
        return "it ended before it began"
    return ""


def settle(records: Iterable[Record]) -> Iterator[Record]:
    """Every operation once, with its outcome: `INFO` for those that were begun and never ended.

    A crash of whoever wrote the history leaves such: nobody knows whether they happened.
    """
    begun: dict[tuple[Op, str, Key, str | None], Record] = {}
    for record in records:
        name = record.op, record.process, record.key, record.value
        if record.outcome == Outcome.INVOKE:
            begun[name] = record
        else:
            begun.pop(name, None)
            yield record
    for record in begun.values():
        yield attrs.evolve(record, outcome=Outcome.INFO, ended_ns=0)
