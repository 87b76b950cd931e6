"""What must hold of orders: an older order that comes late does not undo what was acknowledged.

An operator has things of its own, and gives one order after the other about each: to set it (commit
an offset, create or configure a topic, append a record) or to clear it (delete the offset, the
group, the topic, the records). So whichever order the log carries out, it is known what has been
acknowledged since that order was answered. The truth is again the chosen log.
"""

from enum import Enum
from typing import NamedTuple

import attrs

from balancer.registry.codec import decode_command
from balancer.registry.codec import decode_result as decode_registry_result
from balancer.registry.commands import (
    ConfigureTopic,
    Decided,
    Done,
    TopicCreated,
    TopicDeleted,
)
from broker.proposals.commands import (
    DELETE_RECORDS_RESULT,
    RECORDS_RESULT,
    Command,
    CommandKind,
    parse_delete_records,
)
from coordinator.model import ErrorCode
from coordinator.replicated.commands import (
    CommitOffsets,
    DropGroup,
    DropOffsets,
    decode,
    decode_result,
)
from simulator.environment.violation import Violation
from wire.error_codes import ErrorCode as KafkaError
from wire.records.batch import iterate_records, split

PREFIX = "ordered-"
"""Prefix of the names of operators' things."""
SETTING = "delete.retention.ms"
"""Carries the number of the order; without compaction it has no effect."""


class Fate(Enum):
    """What the operator knows of an order."""

    OPEN = "not answered yet"
    DONE = "acknowledged"
    REFUSED = "will not be carried out"
    UNKNOWN = "answered: nobody knows"
    UNHEARD = "never answered"
    """It may still be on its way to a node: whatever comes of it later is not an error."""


@attrs.define
class Order:
    clears: bool
    fate: Fate = Fate.OPEN
    carried_out: bool = False


class Kept(NamedTuple):
    number: int
    offset: int


@attrs.define(eq=False)
class Thing:
    orders: list[Order] = attrs.Factory(list)
    """By number, from 1."""
    set_by: int = 0
    """The order whose value it has; 0: none."""
    records: list[Kept] = attrs.Factory(list)
    start: int = 0

    def at(self, number: int) -> Order:
        return self.orders[number - 1]


class Orders:
    def __init__(self, *, judges_unheard: bool = False) -> None:
        """`judges_unheard`: nothing holds requests up on their way to a node, so that one which was
        never answered was there in time."""
        self._judges_unheard = judges_unheard
        self._things: dict[str, Thing] = {}
        self._uids: dict[int, str] = {}
        """Partitions of operators' topics."""
        self.carried_out = self.late = 0

    def thing(self, name: str) -> Thing:
        return self._things.setdefault(name, Thing())

    # -- what operators do --------------------------------------------------------------------

    def begin(self, name: str, *, clears: bool) -> int:
        thing = self.thing(name)
        thing.orders.append(Order(clears))
        return len(thing.orders)

    def told(self, name: str, number: int, fate: Fate) -> None:
        order = self.thing(name).at(number)
        order.fate = fate
        if fate is Fate.REFUSED and order.carried_out:
            raise Violation(f"G1a: order {number} of {name} was refused for good, and carried out")
        if fate is Fate.DONE and not order.clears and not order.carried_out:
            raise Violation(f"lost-write: order {number} of {name} is not in the log")

    # -- what nodes do ------------------------------------------------------------------------

    def applied(self, command: Command, result: bytes) -> bool:
        """A command is applied for the first time; returns whether it is about a thing of these."""
        if command.kind == CommandKind.REGISTRY:
            return self._registry_applied(command, result)
        if command.kind == CommandKind.CONSUMER_GROUP:
            return self._group_applied(command, result)
        if command.kind == CommandKind.DELETE_RECORDS:
            uid, _ = parse_delete_records(command.body)
            return uid in self._uids and self._records_deleted(self._uids[uid], result)
        if command.uid not in self._uids:
            return False
        self._appended(self._uids[command.uid], command, result)
        return True

    def _registry_applied(self, command: Command, result: bytes) -> bool:
        told, decoded = decode_registry_result(result), decode_command(command.body)
        decision = decoded.command if isinstance(decoded, Decided) else decoded
        if isinstance(told, TopicDeleted) and told.topic.name.startswith(PREFIX):
            self._cleared(told.topic.name)
        elif isinstance(told, TopicCreated) and not told.topic.name.startswith(PREFIX):
            pass
        elif isinstance(told, TopicCreated) and SETTING in told.topic.configs:
            self._set(told.topic.name, int(told.topic.configs[SETTING]))
        elif isinstance(told, TopicCreated):
            self._uids[told.topic.partitions[0].uid] = told.topic.name
        elif (
            isinstance(told, Done)
            and isinstance(decision, ConfigureTopic)
            and decision.name.startswith(PREFIX)
        ):
            self._set(decision.name, int(decision.configs[SETTING]))
        return True

    def _group_applied(self, command: Command, result: bytes) -> bool:
        decoded = decode(command.body)
        if not isinstance(decoded, CommitOffsets | DropGroup | DropOffsets):
            return False
        name = str(decoded.group)
        if not name.startswith(PREFIX):
            return False
        if decode_result(result).error == ErrorCode.NONE:
            if isinstance(decoded, CommitOffsets):
                self._set(name, decoded.topics[0].partitions[0].offset)
            else:
                self._cleared(name)
        return True

    def _appended(self, name: str, command: Command, result: bytes) -> None:
        error, base, _ = RECORDS_RESULT.unpack(result)
        if error == KafkaError.NONE:
            (batch,) = split(command.body)
            (record,) = iterate_records(batch)
            number = int(record.value or b"0")
            self._carry_out(name, number)
            self.thing(name).records.append(Kept(number, base))

    def _records_deleted(self, name: str, result: bytes) -> bool:
        error, start = DELETE_RECORDS_RESULT.unpack(result)
        thing = self.thing(name)
        if error != KafkaError.NONE or start <= thing.start:
            return True
        gone = [kept.number for kept in thing.records if kept.offset < start]
        acknowledged = [number for number in gone if thing.at(number).fate is Fate.DONE]
        thing.records = [kept for kept in thing.records if kept.offset >= start]
        thing.start = start
        self._check_clearing(name, max(acknowledged, default=0))
        return True

    def _set(self, name: str, number: int) -> None:
        thing = self.thing(name)
        if number != thing.set_by:  # not the same order repeated
            self._carry_out(name, number)
            self._check_order(name, number)
            thing.set_by = number

    def _carry_out(self, name: str, number: int) -> None:
        order = self.thing(name).at(number)
        if order.fate is Fate.REFUSED:
            raise Violation(f"G1a: order {number} of {name}, refused for good, is carried out")
        order.carried_out = True
        self.carried_out += 1

    def _check_order(self, name: str, number: int) -> None:
        thing = self.thing(name)
        if thing.at(number).fate is Fate.UNHEARD and not self._judges_unheard:
            return
        for later in range(number + 1, len(thing.orders) + 1):
            if thing.at(later).fate is Fate.DONE:
                raise Violation(f"late: order {number} of {name} after {later} was acknowledged")

    def _cleared(self, name: str) -> None:
        thing = self.thing(name)
        self._check_clearing(name, thing.set_by)
        thing.set_by = 0

    def _check_clearing(self, name: str, newest: int) -> None:
        """Some order to clear must be behind this, given after what is cleared: if that was not
        acknowledged, no client can object."""
        thing = self.thing(name)
        self.carried_out += 1
        if not newest or thing.at(newest).fate is not Fate.DONE:
            return
        for number, order in enumerate(thing.orders, 1):
            under_way = order.fate is Fate.UNHEARD and not self._judges_unheard
            may_be = under_way or (number > newest and order.fate is not Fate.REFUSED)
            if order.clears and may_be:
                return
        raise Violation(f"late: {name} is cleared, order {newest} was acknowledged since")
