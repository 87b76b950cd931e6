"""The checker of orders is checked: it reports late ones, and no allowed ones."""

import pytest

from balancer.registry.codec import encode_command, encode_result
from balancer.registry.commands import (
    Command,
    ConfigureTopic,
    CreateTopic,
    Decided,
    DeleteTopic,
    Done,
    Refusal,
    Refused,
    Result,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.records import PartitionPlace, PartitionUid, Topic
from broker.proposals import commands
from broker.proposals.commands import DELETE_RECORDS_RESULT, RECORDS_RESULT, CommandKind
from coordinator.model import ConsumerGroupId, ErrorCode, MemberId, PartitionOffset, TopicOffsets
from coordinator.replicated.commands import CommitOffsets, DropGroup, encode
from coordinator.replicated.commands import Result as GroupResult
from coordinator.replicated.commands import encode_result as encode_group_result
from paxos.ids import GroupId, Slot
from simulator.checkers.orders import PREFIX, SETTING, Fate, Orders
from simulator.environment.violation import Violation
from tests.broker.batches import batch

GROUP, TOPIC, LOG = f"{PREFIX}group", f"{PREFIX}topic", f"{PREFIX}log"
UID, ID = 7, bytes([1] * 16)


def applied(orders: Orders, chunks: tuple[commands.Buffer, ...], result: bytes) -> None:
    (command,) = commands.parse(chunks)
    assert orders.applied(command, result)


def commit(orders: Orders, number: int) -> None:
    topics = (TopicOffsets("t", (PartitionOffset(0, number),)),)
    command = CommitOffsets(ConsumerGroupId(GROUP), -1, MemberId(""), None, 0, topics)
    chunks = commands.opaque(CommandKind.CONSUMER_GROUP, encode(command))
    applied(orders, chunks, encode_group_result(GroupResult(ErrorCode.NONE, 1)))


def drop(orders: Orders) -> None:
    chunks = commands.opaque(CommandKind.CONSUMER_GROUP, encode(DropGroup(ConsumerGroupId(GROUP))))
    applied(orders, chunks, encode_group_result(GroupResult(ErrorCode.NONE, 1)))


def registry(orders: Orders, command: Command, result: Result) -> None:
    body = encode_command(Decided(Slot(3), command))
    applied(orders, commands.opaque(CommandKind.REGISTRY, body), encode_result(result))


def topic(name: str, number: int) -> Topic:
    configs = {SETTING: str(number)} if number else {}
    return Topic(name, ID, 1, configs, (PartitionPlace(PartitionUid(UID), GroupId(1)),))


def append(orders: Orders, number: int, offset: int) -> None:
    chunks = commands.records(UID, memoryview(batch(str(number))))
    applied(orders, chunks, RECORDS_RESULT.pack(0, offset, -1))


def trim(orders: Orders, start: int) -> None:
    applied(orders, commands.delete_records(UID, start), DELETE_RECORDS_RESULT.pack(0, start))


def set_and_told(orders: Orders, fate: Fate) -> int:
    number = orders.begin(GROUP, clears=False)
    if fate is Fate.DONE:
        commit(orders, number)
    orders.told(GROUP, number, fate)
    return number


def test_orders_in_their_order_are_all_right() -> None:
    orders = Orders()
    set_and_told(orders, Fate.DONE)
    unknown = set_and_told(orders, Fate.UNKNOWN)
    commit(orders, unknown)
    clearing = orders.begin(GROUP, clears=True)
    drop(orders)
    orders.told(GROUP, clearing, Fate.DONE)
    set_and_told(orders, Fate.DONE)


@pytest.mark.parametrize("fate", [Fate.UNKNOWN, Fate.UNHEARD])
def test_an_order_after_one_that_was_acknowledged_since(fate: Fate) -> None:
    """An order that was never answered may still be on its way from its client: nobody's fault."""
    orders = Orders()
    late = set_and_told(orders, fate)
    set_and_told(orders, Fate.DONE)
    if fate is Fate.UNHEARD:
        commit(orders, late)
    else:
        with pytest.raises(Violation, match="late: "):
            commit(orders, late)


def test_an_order_that_was_refused_and_carried_out() -> None:
    orders = Orders()
    refused = set_and_told(orders, Fate.REFUSED)
    with pytest.raises(Violation, match="G1a: "):
        commit(orders, refused)
    done = orders.begin(GROUP, clears=False)
    commit(orders, done)
    with pytest.raises(Violation, match="G1a: "):
        orders.told(GROUP, done, Fate.REFUSED)


def test_an_order_that_is_acknowledged_and_not_carried_out() -> None:
    orders = Orders()
    number = orders.begin(GROUP, clears=False)
    with pytest.raises(Violation, match="lost-write: "):
        orders.told(GROUP, number, Fate.DONE)


def test_a_group_that_is_cleared_by_an_order_of_before() -> None:
    orders = Orders()
    clearing = orders.begin(GROUP, clears=True)
    orders.told(GROUP, clearing, Fate.UNKNOWN)
    set_and_told(orders, Fate.DONE)
    with pytest.raises(Violation, match="late: "):
        drop(orders)


def test_a_topic_that_is_configured_or_deleted_late() -> None:
    orders = Orders()
    create, early, since = (orders.begin(TOPIC, clears=False) for _ in range(3))
    registry(orders, CreateTopic(TOPIC, ID, 1), TopicCreated(topic(TOPIC, create)))
    registry(orders, CreateTopic(TOPIC, ID, 1), TopicCreated(topic(TOPIC, create)))
    registry(orders, ConfigureTopic(TOPIC, ID, {SETTING: str(since)}), Done(5))
    orders.told(TOPIC, early, Fate.UNKNOWN)
    orders.told(TOPIC, since, Fate.DONE)
    late = ConfigureTopic(TOPIC, ID, {SETTING: str(early)})
    registry(orders, late, Refused(Refusal.OVERTAKEN))
    with pytest.raises(Violation, match="late: "):
        registry(orders, late, Done(6))
    with pytest.raises(Violation, match="late: "):
        registry(orders, DeleteTopic(TOPIC, ID), TopicDeleted(topic(TOPIC, since)))


def test_records_that_go_though_nobody_has_asked_since_they_came() -> None:
    orders = Orders()
    registry(orders, CreateTopic(LOG, ID, 1), TopicCreated(topic(LOG, 0)))
    first, clearing, second = (orders.begin(LOG, clears=clears) for clears in (False, True, False))
    append(orders, first, 0)
    orders.told(LOG, first, Fate.DONE)
    orders.told(LOG, clearing, Fate.UNKNOWN)
    append(orders, second, 1)
    orders.told(LOG, second, Fate.DONE)
    trim(orders, 1)
    trim(orders, 1)
    with pytest.raises(Violation, match="late: "):
        trim(orders, 2)
