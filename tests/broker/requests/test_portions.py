"""How a request that names much is cut into portions, and how much of a round they get."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.requests.context import Broker
from broker.requests.portions import SPLIT_RULES, SplitRule, _cut, _weight
from tests.broker.fakes import FakeReply
from tests.broker.world import CLIENT_HOST, World
from wire.apis import ApiKey, decode_response, encode_request
from wire.messages import configs
from wire.messages.logs import DeleteRecordsPartition, DeleteRecordsTopic

WAY = SplitRule(40, "topics", "topics", "partitions", "partitions")


def topic(number: int, partitions: int) -> DeleteRecordsTopic:
    return DeleteRecordsTopic(
        f"t{number}", [DeleteRecordsPartition(at, 0) for at in range(partitions)]
    )


def flat(topics: list[DeleteRecordsTopic]) -> list[tuple[str, int]]:
    return [(one.name, part.partition_index) for one in topics for part in one.partitions]


@given(st.lists(st.integers(0, 120), max_size=30))
def test_portions_are_all_that_was_asked_in_its_order(sizes: list[int]) -> None:
    """Each is a fourth of what is served in one piece, except that it ends with a whole topic."""
    asked = [topic(number, size) for number, size in enumerate(sizes)]
    portions = list(_cut(asked, WAY))
    assert [one for portion in portions for one in flat(portion)] == flat(asked)
    named = {one.name for portion in portions for one in portion}
    assert named == {one.name for one in asked}, "also those without partitions"
    for portion in portions:
        assert _weight(portion, WAY.inner) <= WAY.portion + 1


def test_a_round_serves_one_portion_whoever_asks() -> None:
    """For other clients, four such requests are no worse than one."""
    world = World(nodes=1, groups=1)
    node = world[1]
    timers: Any = world.cluster.timers
    call_at, rounds = timers.call_at, [0]

    def counted(callback: Callable[[], None]) -> None:
        before = len(named)
        callback()
        rounds.append(len(named) - before)

    timers.call_at = lambda at, callback: call_at(at, lambda: counted(callback))
    size = SPLIT_RULES[ApiKey.DESCRIBE_CONFIGS].size
    resources = [configs.DescribeConfigsResource(2, f"t{at}") for at in range(size + 1)]
    asked = configs.DescribeConfigsRequest(resources)
    frame = memoryview(b"".join(encode_request(asked, 4, 7, "test"))[4:])
    named: list[int] = []
    handler = node.api._handlers[ApiKey.DESCRIBE_CONFIGS]

    def counting(broker: Broker, request: Any) -> None:
        named.append(len(request.message.resources))
        handler(broker, request)

    node.api._handlers[ApiKey.DESCRIBE_CONFIGS] = counting
    replies = [FakeReply() for _ in range(4)]
    for reply in replies:
        node.api.handle_frame(frame, True, CLIENT_HOST, reply)
    assert not named, "nothing is done in the round in which it comes"
    for _ in range(1_000):
        if all(reply.settled for reply in replies):
            break
        world.cluster.advance(1, step_ms=1)
    assert sum(named) == 4 * (size + 1)
    assert max(rounds) == 1
    assert max(named) == size // 4
    for reply in replies:
        assert reply.frame is not None
        told: Any = decode_response(ApiKey.DESCRIBE_CONFIGS, 4, memoryview(reply.frame)[4:])
        assert [one.resource_name for one in told.results] == [f"t{at}" for at in range(size + 1)]
