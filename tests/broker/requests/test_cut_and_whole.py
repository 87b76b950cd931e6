"""A request that is served in portions gets the same answer as in one piece."""

from collections import Counter
from typing import Any, Final
from unittest.mock import patch

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.requests import portions
from broker.requests.portions import SPLIT_RULES, SplitRule
from tests.broker.batches import batch
from tests.broker.fakes import FakeReply
from tests.broker.requests.test_hostile import encoded, sensible
from tests.broker.world import CLIENT_HOST, World
from wire.apis import APIS, Api, ApiKey, decode_response
from wire.messages.configs import DescribeConfigsResource
from wire.messages.fetch import FetchPartition
from wire.messages.leader_epochs import OffsetForLeaderPartition
from wire.messages.list_offsets import ListOffsetsPartition
from wire.messages.logs import DeleteRecordsPartition
from wire.messages.metadata import MetadataRequestTopic
from wire.messages.offsets import (
    OffsetCommitRequestPartition,
    OffsetDeletePartition,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from wire.messages.placement import ReassignablePartition
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

PORTION: Final = 3
PARTITIONS: Final = 3
NAMES: Final = ("t", "u", "nobody's")
NOT_ONE: Final = (b"", b"nonsense", batch("a") + batch("b"))

names = st.sampled_from(NAMES)
places = st.integers(0, PARTITIONS)
records = st.one_of(st.sampled_from(["x", "y", "z"]).map(batch), st.sampled_from(NOT_ONE))
INNER: Final[dict[int, st.SearchStrategy[Any]]] = {
    ApiKey.PRODUCE: st.builds(PartitionProduceData, places, records.map(memoryview)),
    ApiKey.FETCH: st.builds(
        FetchPartition, places, fetch_offset=st.integers(0, 2), partition_max_bytes=st.just(1000)
    ),
    ApiKey.LIST_OFFSETS: st.builds(
        ListOffsetsPartition, places, timestamp=st.sampled_from([-1, -2, 0])
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: st.builds(
        OffsetForLeaderPartition, places, st.sampled_from([-1, 0, 99]), st.integers(0, 2)
    ),
    ApiKey.OFFSET_COMMIT: st.builds(OffsetCommitRequestPartition, places, st.integers(0, 9)),
    ApiKey.DELETE_RECORDS: st.builds(DeleteRecordsPartition, places, st.sampled_from([-1, 0, 1])),
    ApiKey.OFFSET_DELETE: st.builds(OffsetDeletePartition, places),
    ApiKey.ELECT_LEADERS: places,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: st.builds(
        ReassignablePartition, places, st.sampled_from([None, [9], [1, 2, 3], [1]])
    ),
}
groups = st.sampled_from(["g", "h", "nobody's"])
fetched_topics = st.builds(
    OffsetFetchRequestTopic, names, st.sampled_from([[0], [0, 1], list(range(120))])
)
SINGLE: Final[dict[int, st.SearchStrategy[Any]]] = {
    ApiKey.OFFSET_FETCH: st.builds(
        OffsetFetchRequestGroup,
        groups,
        topics=st.none() | st.lists(fetched_topics, max_size=4, unique_by=lambda one: one.name),
    ),
    ApiKey.METADATA: st.builds(MetadataRequestTopic, name=names),
    ApiKey.FIND_COORDINATOR: groups,
    ApiKey.DESCRIBE_GROUPS: groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups,
    ApiKey.DELETE_GROUPS: groups,
    ApiKey.DESCRIBE_CONFIGS: st.builds(
        DescribeConfigsResource,
        st.just(2),
        names,
        st.none() | st.just(["retention.ms"]),
    ),
}


def version_of(api: Api) -> int:
    return 12 if api.key == ApiKey.FETCH else api.accepted.last  # the last one that names topics


def answered(message: Any, api: Api, ways: dict[int, SplitRule]) -> tuple[Any, Any]:
    """The answer of a fresh cluster, and the contents of its logs afterwards."""
    world = World(nodes=3, groups=2)
    created = [CreatableTopic(name, PARTITIONS, 1) for name in NAMES[:2]]
    world.ask(1, CreateTopicsRequest(created, 5_000), 5)
    for name in NAMES[:2]:
        data = PartitionProduceData(0, memoryview(batch("first")))
        world.ask(1, ProduceRequest(None, -1, 1_000, [TopicProduceData(name, [data])]), 9)
    with patch.dict(portions.SPLIT_RULES, ways, clear=True):
        asked = world.send(1, message, version_of(api))
        for _ in range(600):
            world.cluster.settle()
            if asked.settled:
                break
            world.cluster.advance(10)
    assert not world[1].bugs, world[1].bugs
    ends = {
        (group, uid): (state.log_start, state.next_offset)
        for group, machine in world[1].machines.items()
        for uid, state in machine.partitions.items()
    }
    return asked.response, ends


def rows(response: Any, way: SplitRule) -> Counter[str]:
    """The answer's rows in any order, each with its topic."""
    found: Counter[str] = Counter()
    for one in getattr(response, way.answered):
        inner = getattr(one, way.answered_inner) if way.answered_inner else []
        bare = attrs.evolve(one, **{way.answered_inner: []}) if way.answered_inner else one
        found.update(f"{bare} {_plain(part)}" for part in inner)
        if not way.answered_inner:
            found[str(one)] += 1
    return found


def _plain(part: Any) -> str:
    if hasattr(part, "records"):
        part = attrs.evolve(part, records=b"".join(map(bytes, part.records or ())))
    return str(part)


def requests(api: Api) -> st.SearchStrategy[Any]:
    way, first = SPLIT_RULES[api.key], sensible(api)
    if api.key in INNER:
        topic = getattr(first, way.asked)[0]
        name = "topic" if hasattr(topic, "topic") else "name"
        item = st.builds(
            lambda one, parts: attrs.evolve(topic, **{name: one, way.inner: parts}),
            names,
            st.lists(INNER[api.key], min_size=1, max_size=8),
        )
    else:
        item = SINGLE[api.key]
    items = st.lists(item, min_size=PORTION + 1, max_size=8)
    more = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    extra = more if api.key == ApiKey.FETCH else {}
    return items.map(lambda some: attrs.evolve(first, **{way.asked: some, **extra}))


@pytest.mark.parametrize("key", sorted(SPLIT_RULES), ids=lambda key: APIS[key].name)
@settings(max_examples=25)
@given(data=st.data())
def test_as_in_one_piece(key: int, data: st.DataObject) -> None:
    api, way = APIS[key], SPLIT_RULES[key]
    message = data.draw(requests(api))
    whole = message
    if way.once is not None:  # a duplicate question is answered once
        each = {way.once(one): one for one in getattr(message, way.asked)}
        whole = attrs.evolve(message, **{way.asked: list(each.values())})
    small = {key: way._replace(size=PORTION)}
    with patch.multiple(portions, LOOKED_AT_MAX=2, PORTIONS_OF_A_PIECE=1):
        in_portions, left = answered(message, api, small)
    in_one, expected = answered(whole, api, {})
    assert rows(in_portions, way) == rows(in_one, way)
    assert left == expected
    assert getattr(in_portions, "error_code", 0) == getattr(in_one, "error_code", 0)


def test_a_frame_that_dies_with_its_round() -> None:
    """What is served later must not be read from memory that is reused by then."""
    world = World(nodes=3, groups=2)
    world.ask(1, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5_000), 5)
    nobody = [TopicProduceData("n", [])] * SPLIT_RULES[ApiKey.PRODUCE].size
    topic = TopicProduceData("t", [PartitionProduceData(0, memoryview(batch("x")))])
    frame = bytearray(encoded(ProduceRequest(None, -1, 1_000, [*nobody, topic]), 9))
    reply = FakeReply()
    world[1].api.handle_frame(memoryview(frame), False, CLIENT_HOST, reply)
    frame[:] = bytes(len(frame))
    world.cluster.advance(100)
    assert reply.frame is not None
    answer = decode_response(ApiKey.PRODUCE, 9, memoryview(reply.frame)[4:])
    assert [one.error_code for one in answer.responses[-1].partition_responses] == [0]
