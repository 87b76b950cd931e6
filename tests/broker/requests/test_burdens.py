"""Memory that requests need beyond their bytes: counted in advance, bounded, given back."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest

from broker.delayed.delayed_fetches import (
    FETCH_BYTES,
    PARTITION_BYTES,
    STEPS_PER_ROUND,
    DelayedFetches,
)
from broker.requests.portions import Portions
from broker.requests.request_memory import DECODED_PER_BYTE, RequestMemory
from tests.broker.batches import timed
from tests.broker.fakes import FakeReply
from tests.broker.world import CLIENT_HOST, World
from wire.apis import ApiKey, decode_response, encode_request
from wire.error_codes import ErrorCode
from wire.messages import configs, membership, produce, topics
from wire.records.batch import Batch, Compression, parse_header
from wire.records.compression import unpack

# -- decoding -------------------------------------------------------------------------------------


def test_large_requests_are_decoded_while_there_is_room_and_in_their_order() -> None:
    request_memory = RequestMemory(decoded_max=300 * DECODED_PER_BYTE)
    begun: list[str] = []
    for name, size in (("a", 200), ("b", 100), ("c", 50), ("d", 300), ("e", 1)):
        request_memory.decode(size, lambda name=name: begun.append(name))
    assert begun == ["a", "b"]
    assert request_memory.waiting == 3
    request_memory.decoded_end(200)
    assert begun == ["a", "b", "c"], "e does not overtake d, or d might wait for ever"
    request_memory.decoded_end(100)
    assert begun == ["a", "b", "c"]
    request_memory.decoded_end(50)
    assert begun == ["a", "b", "c", "d"]
    request_memory.decoded_end(300)
    request_memory.decoded_end(1)
    assert begun == ["a", "b", "c", "d", "e"]
    assert request_memory.decoded == 0


def test_one_request_is_decoded_however_large_it_is() -> None:
    request_memory = RequestMemory(decoded_max=1)
    begun: list[int] = []
    request_memory.decode(1_000, lambda: begun.append(1))
    assert begun == [1]


@pytest.fixture
def world() -> World:
    world = World(nodes=1, groups=1)
    for broker in (world[1].broker,):
        broker.request_memory = RequestMemory(decoded_max=1)
    return world


def large(kind: str) -> memoryview:
    """Longer than what is decoded on the loop."""
    asked: Any
    if kind == "portions":
        keys = [f"group-{at}" for at in range(5_000)]
        asked, version = membership.FindCoordinatorRequest("", 0, keys), 4
    elif kind == "handler":
        asked, version = (
            topics.DeleteTopicsRequest([], [topics.DeleteTopicState("x" * 40_000)]),
            6,
        )
    else:
        keys = [f"group-{at}" for at in range(5_000)]
        asked, version = membership.FindCoordinatorRequest("", 0, keys), 4
    frame = b"".join(encode_request(asked, version, 7, "test"))[4:]
    return memoryview(frame[:-50] if kind == "malformed" else frame)


@pytest.mark.parametrize("kind", ["portions", "handler", "malformed"])
def test_room_is_given_back_when_a_request_is_done_with(world: World, kind: str) -> None:
    """Whatever the outcome; the next request has waited undecoded."""
    request_memory = world[1].broker.request_memory
    replies = [FakeReply() for _ in range(3)]
    for reply in replies:
        world[1].api.handle_frame(large(kind), True, CLIENT_HOST, reply)
    for _ in range(3_000):
        if all(reply.settled for reply in replies) and not request_memory.decoded:
            break
        world.cluster.settle()
        world.cluster.advance(1, step_ms=1)
    assert all(reply.settled for reply in replies)
    assert request_memory.decoded == request_memory.waiting == 0
    assert not any(reply.stopped for reply in replies)
    assert not world[1].bugs


def test_who_hung_up_meanwhile_is_not_decoded(world: World) -> None:
    broker = world[1].broker
    broker.request_memory.decode(1, lambda: None)
    reply = FakeReply(hung_up=True)
    world[1].api.handle_frame(large("portions"), True, CLIENT_HOST, reply)
    assert not reply.settled
    broker.request_memory.decoded_end(1)
    assert reply.closed == "it has hung up"
    assert broker.request_memory.decoded == 0


# -- portions -------------------------------------------------------------------------------------


def test_answers_to_portions_are_counted_and_the_first_is_served_first() -> None:
    """Over the bound, requests are not served in turns: all would be half done, and all held."""
    world = World(nodes=1, groups=1)
    broker = world[1].broker
    broker.portions = portions = Portions(1)
    resources = [configs.DescribeConfigsResource(4, f"{at}") for at in range(200)]
    frame = b"".join(encode_request(configs.DescribeConfigsRequest(resources), 4, 7, "test"))
    replies = [FakeReply() for _ in range(3)]
    settled: list[int] = []
    held = 0
    for reply in replies:
        world[1].api.handle_frame(memoryview(frame)[4:], True, CLIENT_HOST, reply)
    for _ in range(3_000):
        if len(settled) == 3:
            break
        world.cluster.advance(1, step_ms=1)
        held = max(held, portions.bytes)
        settled += [at for at, reply in enumerate(replies) if reply.settled and at not in settled]
    assert settled == [0, 1, 2]
    assert portions.bytes == 0
    told: Any = decode_response(ApiKey.DESCRIBE_CONFIGS, 4, memoryview(replies[2].frame or b"")[4:])
    assert len(told.results) == 200


def test_an_answer_that_gets_too_long_is_given_up_before_it_is_whole() -> None:
    world = World(nodes=1, groups=1)
    portions = world[1].broker.portions
    resources = [configs.DescribeConfigsResource(4, f"{at}") for at in range(200)]
    frame = b"".join(encode_request(configs.DescribeConfigsRequest(resources), 4, 7, "test"))
    reply = FakeReply(room=500)
    world[1].api.handle_frame(memoryview(frame)[4:], True, CLIENT_HOST, reply)
    for _ in range(100):
        world.cluster.advance(1, step_ms=1)
    assert reply.closed is not None
    assert portions.bytes == 0
    assert not len(portions)
    assert reply.stopped == 0


# -- delayed fetches ------------------------------------------------------------------------------


@attrs.define
class WaitingFetch:
    uids: list[int]
    ended: int = 0

    def try_complete(self) -> bool:
        return False

    def expired(self) -> None:
        self.ended += 1


def test_fetches_that_wait_are_bounded_by_what_they_hold() -> None:
    """A few fetches of many partitions weigh as much as many fetches of one."""
    world = World(nodes=1, groups=1)
    each = FETCH_BYTES + 100 * PARTITION_BYTES
    parked = DelayedFetches(world[1].broker.groups, world.cluster.timers, 1_000, 3 * each)
    ends = []
    for number in range(3):
        assert not parked.full
        sleeper = WaitingFetch(list(range(number * 100, number * 100 + 100)))
        ends.append(parked.park(sleeper, 1_000))
    assert parked.full
    assert parked.bytes == 3 * each
    ends[1].end()
    assert not parked.full
    assert parked.bytes == 2 * each
    world.cluster.advance(2_000, step_ms=100)
    assert parked.bytes == 0


def test_fetches_whose_time_ends_together_are_answered_in_several_rounds() -> None:
    """Answering five hundred fetches of a hundred partitions each at once would hold the loop for
    long."""
    world = World(nodes=1, groups=1)
    timers: Any = world.cluster.timers
    call_at, rounds = timers.call_at, []

    def counted(callback: Callable[[], None]) -> None:
        before = sum(one.ended for one in sleepers)
        callback()
        rounds.append(sum(one.ended for one in sleepers) - before)

    timers.call_at = lambda at, callback: call_at(at, lambda: counted(callback))
    parked = DelayedFetches(world[1].broker.groups, timers, 1_000)
    sleepers = [WaitingFetch(list(range(100))) for _ in range(500)]
    for sleeper in sleepers:
        parked.park(sleeper, 1_000)
    world.cluster.advance(2_000, step_ms=100)
    assert [one.ended for one in sleepers] == [1] * 500
    assert max(rounds) <= STEPS_PER_ROUND // 110 + 1
    assert len(parked) == 0


@attrs.define(eq=False)
class Reader(WaitingFetch):
    """A fetch that is answered by the first event."""

    looked: list[int] = attrs.field(factory=list)
    satisfied: bool = True

    def try_complete(self) -> bool:
        self.looked.append(1)
        return self.satisfied


@pytest.mark.parametrize("what", ["appended", "masters"])
def test_fetches_that_are_woken_together_are_looked_at_in_several_rounds(what: str) -> None:
    """Each is tried once, those that cannot be answered stay, and the order of waking is kept."""
    world = World(nodes=1, groups=1)
    timers: Any = world.cluster.timers
    parked = DelayedFetches(world[1].broker.groups, timers, 1_000)
    readers = [Reader(list(range(100)), satisfied=number % 2 == 0) for number in range(500)]
    for reader in readers:
        parked.park(reader, 60_000)
    wake = parked.masters_changed if what == "masters" else partial(parked.appended, [5, 6])
    wake()
    rounds = [sum(len(one.looked) for one in readers)]
    assert all(one.looked for one in readers[: rounds[0]])
    wake()  # those that wait for their turn are not woken twice
    while timers.next_boot_ns() <= timers.clock.boot_ns:
        before = sum(len(one.looked) for one in readers)
        timers.next_only()
        rounds.append(sum(len(one.looked) for one in readers) - before)
    assert max(rounds) <= 2 * (STEPS_PER_ROUND // 110 + 1)
    assert len(parked) == 250
    assert all(1 <= len(one.looked) <= 2 - one.satisfied for one in readers)
    world.cluster.advance(61_000, step_ms=1_000)
    assert [one.ended for one in readers] == [1 - one.satisfied for one in readers]


# -- decompressing --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_what_is_unpacked_has_the_room_of_this_node(codec: Compression) -> None:
    """A larger batch gets MESSAGE_TOO_LARGE, though other nodes have room for it."""
    world = World(nodes=1, groups=1)
    node = world[1]
    world.ask(1, topics.CreateTopicsRequest([topics.CreatableTopic("t", 1, 1)], 5_000), 5)
    node.broker.config = attrs.evolve(node.broker.config, unpacked_bytes_max=3 << 20)
    for pad, wanted in ((2 << 20, 0), (4 << 20, ErrorCode.MESSAGE_TOO_LARGE)):
        data = timed([0], compression=codec, pad=pad)
        part = produce.PartitionProduceData(0, memoryview(data))
        asked = produce.ProduceRequest(None, -1, 30_000, [produce.TopicProduceData("t", [part])])
        answer = world.ask(1, asked, 9)
        assert answer.responses[0].partition_responses[0].error_code == wanted
        batch = Batch(parse_header(memoryview(data)), memoryview(data))
        assert len(unpack(batch, 5 << 20)) > pad
    assert node.broker.request_memory.unpacked == 0
