"""Ten thousand consumer groups, some with ten thousand offsets: listing them, and fetching all
offsets, holds the loop no longer than a small request. Measured as in test_stretches."""

from typing import Any, Final

import pytest

from broker.groups.consumer_groups import paxos_group_of
from broker.handlers.groups import offsets
from coordinator.model import ConsumerGroupId, MemberId, PartitionOffset, TopicOffsets
from coordinator.replicated.commands import CommitOffsets, encode
from tests.broker.fakes import FakeReply
from tests.broker.hostile_list import Dear, _frame
from tests.broker.requests.test_stretches import Measured, holds_nobody_up
from tests.broker.requests.test_stretches import (
    _collects_as_a_node as _collects_as_a_node,  # a fixture
)
from tests.broker.world import CLIENT_HOST
from wire.apis import APIS, ApiKey, decode_response
from wire.error_codes import ErrorCode
from wire.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

STRETCH_MS_MAX: Final = 8.0
GROUPS: Final = 10_000
LARGE: Final = 3
TOPICS: Final = 20
PARTITIONS: Final = 500


def committed(measured: Measured, name: str, topics: int, partitions: int) -> None:
    """As if applied on the node that is measured; it coordinates all Paxos groups."""
    node = measured.world[1]
    group = paxos_group_of(node.broker.registry, name)
    assert group is not None
    named = []
    for number in range(topics):
        places = node.broker.registry.topics[f"many-{number}"].partitions
        rows = [PartitionOffset(at, 7, -1, "", places[at].uid) for at in range(partitions)]
        named.append(TopicOffsets(f"many-{number}", tuple(rows)))
    command = CommitOffsets(ConsumerGroupId(name), -1, MemberId(""), None, 0, tuple(named))
    node.broker.machines[group].consumer_groups.apply(encode(command))


@pytest.fixture(scope="module")
def measured() -> Measured:
    made = Measured()
    for number in range(TOPICS):
        topic = CreatableTopic(f"many-{number}", PARTITIONS, 1)
        made.world.ask(1, CreateTopicsRequest([topic], 5_000), 5)
    for group in range(1, 5):
        made.world.cluster.install(group, 1)
    for number in range(GROUPS):
        committed(made, f"group-{number}", 1, 1)
    for number in range(LARGE):
        committed(made, f"large-{number}", TOPICS, PARTITIONS)
    return made


def answer_to(measured: Measured, dear: Dear) -> ListGroupsResponse | OffsetFetchResponse:
    reply, node = FakeReply(), measured.world[1]
    node.api.handle_frame(memoryview(dear.frame), True, CLIENT_HOST, reply)
    while not reply.settled:
        while measured.background.done:
            measured.background.done.pop(0)()
        measured.world.cluster.advance(1, step_ms=1)
    assert reply.frame is not None
    body = memoryview(reply.frame)[4:]
    response = decode_response(ApiKey(dear.api.key), dear.version, body)
    assert isinstance(response, ListGroupsResponse | OffsetFetchResponse)
    return response


@pytest.mark.parametrize("version", [0, 5])
def test_ten_thousand_groups_are_listed(measured: Measured, version: int) -> None:
    api = APIS[ApiKey.LIST_GROUPS]
    dear = Dear("ListGroups", api, version, _frame(ListGroupsRequest(), version))
    response = answer_to(measured, dear)
    assert isinstance(response, ListGroupsResponse)
    names = {one.group_id for one in response.groups}
    assert len(names) == len(response.groups) == GROUPS + LARGE
    holds_nobody_up(measured, dear, STRETCH_MS_MAX)


@pytest.mark.parametrize("version", [7, 9])
def test_all_offsets_of_large_groups_are_fetched(measured: Measured, version: int) -> None:
    """Beside a small group and one that does not exist."""
    names = ["large-0", "group-1", "nobody", "large-1", "large-2"]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(one) for one in names])
    if version < 8:
        request, names = OffsetFetchRequest("large-0", topics=None), names[:1]
    for one in request.groups:
        one.topics = None
    dear = Dear("OffsetFetch", APIS[ApiKey.OFFSET_FETCH], version, _frame(request, version))
    response = answer_to(measured, dear)
    assert isinstance(response, OffsetFetchResponse)
    counts = [len(response.topics)] if version < 8 else [len(one.topics) for one in response.groups]
    assert counts == [{"large": TOPICS, "group": 1}.get(one[:5], 0) for one in names]
    rows = response.topics if version < 8 else response.groups[0].topics
    for topic in rows:
        assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [
            (at, 7) for at in range(PARTITIONS)
        ]
    assert measured.world[1].broker.portions.bytes == 0, "nothing is held for it any more"
    holds_nobody_up(measured, dear, STRETCH_MS_MAX)


def test_all_offsets_of_too_many_groups_are_refused(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group may have a hundred thousand."""
    monkeypatch.setattr(offsets, "ALL_OFFSETS_MAX", LARGE * TOPICS * PARTITIONS - 1)
    groups = [OffsetFetchRequestGroup(f"large-{number}") for number in range(LARGE)]
    for one in groups:
        one.topics = None
    frame = _frame(OffsetFetchRequest(groups=groups), 9)
    response = answer_to(measured, Dear("OffsetFetch", APIS[ApiKey.OFFSET_FETCH], 9, frame))
    assert isinstance(response, OffsetFetchResponse)
    assert {one.error_code for one in response.groups} == {ErrorCode.INVALID_REQUEST}


def test_nobody_goes_on_for_who_has_hung_up(measured: Measured) -> None:
    group = OffsetFetchRequestGroup("large-0")
    group.topics = None
    frame = _frame(OffsetFetchRequest(groups=[group]), 9)
    reply, node = FakeReply(), measured.world[1]
    reply.hung_up = True
    asked = 0
    ask = node.broker.consumer_groups.ask

    def counted(*args: Any) -> None:
        nonlocal asked
        asked += 1
        ask(*args)

    node.broker.consumer_groups.ask = counted  # type: ignore[method-assign]
    try:
        node.api.handle_frame(memoryview(frame), True, CLIENT_HOST, reply)
        measured.world.cluster.advance(100, step_ms=1)
    finally:
        node.broker.consumer_groups.ask = ask  # type: ignore[method-assign]
    assert asked == 1
    assert node.broker.portions.bytes == 0


def test_a_slice_that_fails_leaves_nothing_held(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug while the third slice is asked for: the connection ends, what the others gave goes."""
    group = OffsetFetchRequestGroup("large-0")
    group.topics = None
    frame = _frame(OffsetFetchRequest(groups=[group]), 9)
    reply, node = FakeReply(), measured.world[1]
    ask, asked = node.broker.consumer_groups.ask, 0

    def fails(*args: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise RuntimeError("a bug")
        ask(*args)

    monkeypatch.setattr(node.broker.consumer_groups, "ask", fails)
    monkeypatch.setattr(node.broker, "on_bug", lambda what, error: None)
    node.api.handle_frame(memoryview(frame), True, CLIENT_HOST, reply)
    measured.world.cluster.advance(100, step_ms=1)
    assert asked == 3
    assert reply.closed
    assert node.broker.portions.bytes == 0
