"""The records of a history: what a process did and saw.

A history is what clients, and observers of the nodes, wrote down while they used a cluster. It
holds no model of the system: `history.checker` asks only whether logs could have shown it to them.
A *key* is one log: a topic and a partition. The values that are sent to one key are unique.

The records of one process are in the order in which it acted. Only its sends may come later than
they began, because their line is written when their outcome is known (`began_ns` orders them).
Times are nanoseconds of one clock that never goes back; 0 means that no time was taken.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import attrs

UNKNOWN: Final = -1
"""There is no offset, or it is not known."""


class Op(StrEnum):
    """The kind of a record. It decides what `value` and `offset` mean: docs/history.md."""

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
    """`INVOKE`: the operation has begun; a later record of it, if there is one, says how it ended.

    `FAIL` means *surely not done*, now or later; `INFO` means that the outcome is unknown.
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
"""The key of a fault, which concerns everything."""


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
    """The fields that a record with outcome OK must have."""

    value: bool = False
    offset: bool = False


NEEDS: Final[Mapping[Op, Needs]] = {
    Op.SEND: Needs(value=True),  # a producer does not always learn the offset, even if it is OK
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
    """What is wrong with this record, or ""."""
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
    """Every operation once, with its outcome: `INFO` for those that began and never ended.

    A crash of the process that wrote the history leaves such operations: nobody knows whether they
    happened.
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
