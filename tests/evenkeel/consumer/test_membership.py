"""A static member that comes back to a scripted coordinator: what it checks."""

from collections.abc import Collection, Mapping
from typing import Any, cast

import attrs
import pytest
import trio

from evenkeel.client import Client
from evenkeel.config import Assignor, ConsumerConfig
from evenkeel.consumer.membership import Membership
from evenkeel.coordinator import Coordinator
from evenkeel.errors import UnreachableError
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode
from wire.messages import consumer_protocol as protocol
from wire.messages.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

Places = dict[str, list[int]]


def assignment(places: Places) -> bytes:
    topics = [protocol.TopicPartition(*one) for one in places.items()]
    return protocol.encode_assignment(protocol.ConsumerProtocolAssignment(topics))


def places_of(data: bytes) -> Places:
    return {
        one.topic: one.partitions for one in protocol.decode_assignment(data).assigned_partitions
    }


def subscription(topics: Collection[str]) -> bytes:
    said = protocol.ConsumerProtocolSubscription(topics=sorted(topics))
    return protocol.encode_subscription(said)


@attrs.define
class Script:
    """A group of `us` and `other`, and the cluster's topics: client, view and coordinator in one.

    The first join is that of a returning member. Every later one is a rebalance, which the member
    leads if it led before.
    """

    topics: Mapping[str, int]
    given: Mapping[str, Places]
    """The partitions that the group's plan gives to each member."""
    wants: Mapping[str, Collection[str]]
    leader: str = "us"
    describes: bool = True
    group: str = "g"
    heartbeats: trio.Event = attrs.Factory(trio.Event)
    joins: int = 0
    described: int = 0
    plans: list[dict[str, Places]] = attrs.Factory(list)

    @property
    def view(self) -> "Script":
        return self

    def partitions_of(self, topic: str) -> range:
        return range(self.topics.get(topic, 0))

    def follow(self, topics: Collection[str]) -> None:
        pass

    async def refresh(self) -> None:
        await trio.lowlevel.checkpoint()

    def check(self, what: str, code: int) -> None:
        assert code == ErrorCode.NONE, what

    async def ask(self, message: object, kind: type[Any], **_: object) -> object:
        await trio.lowlevel.checkpoint()
        match message:
            case JoinGroupRequest():
                return self._joined()
            case SyncGroupRequest():
                shares = {one.member_id: one.assignment for one in message.assignments}
                if shares:
                    self.plans.append({name: places_of(one) for name, one in shares.items()})
                return SyncGroupResponse(assignment=shares.get("us", assignment(self.given["us"])))
            case DescribeGroupsRequest():
                self.described += 1
                if not self.describes:
                    raise UnreachableError("the coordinator is away")
                members = [
                    DescribedGroupMember(name, member_assignment=assignment(places))
                    for name, places in self.given.items()
                ]
                group = DescribedGroup(group_id=self.group, members=members)
                return DescribeGroupsResponse(groups=[group])
            case HeartbeatRequest():
                self.heartbeats.set()
                return HeartbeatResponse()
            case _:
                raise AssertionError(message)

    def _joined(self) -> JoinGroupResponse:
        self.joins += 1
        members = [
            JoinGroupResponseMember(name, name, subscription(topics))
            for name, topics in self.wants.items()
        ]
        leads = self.leader == "us"
        return JoinGroupResponse(
            generation_id=6 + self.joins,
            protocol_name=Assignor.RANGE.value,
            leader=self.leader,
            skip_assignment=leads and self.joins == 1,
            member_id="us",
            members=members if leads else [],
        )


class Nobody:
    """A holder for which nothing is done."""

    async def assigned(self, places: Collection[TopicPartition]) -> None: ...

    async def revoked(self, places: Collection[TopicPartition]) -> None: ...

    async def lost(self, places: Collection[TopicPartition]) -> None: ...


async def come_back(script: Script, *, instance: str | None = "i-us") -> Membership:
    """Be a member until a heartbeat shows that it has settled."""
    config = ConsumerConfig(
        group="g", instance=instance, assignors=(Assignor.RANGE,), heartbeat_ms=10
    )
    membership = Membership(
        cast(Client, script), config, cast(Coordinator, script), Nobody(), frozenset(["a"])
    )
    membership.topics = frozenset(script.wants["us"])
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(membership.run)
            await script.heartbeats.wait()
            nursery.cancel_scope.cancel()
    return membership


BOTH = {"us": ["a"], "other": ["a"]}


async def test_a_leader_that_comes_back_shares_what_was_added_while_it_was_away() -> None:
    """KIP-814 keeps it from assigning when it returns, so it checks what the plan does not
    cover."""
    script = Script({"a": 4}, {"us": {"a": [0]}, "other": {"a": [1]}}, BOTH)
    membership = await come_back(script)
    assert script.plans == [{"other": {"a": [0, 1]}, "us": {"a": [2, 3]}}]
    assert membership.leads


@pytest.mark.parametrize(
    ("topics", "wants"),
    [
        ({"a": 2, "b": 1}, {"us": ["a", "b"], "other": ["a"]}),
        ({"a": 2, "b": 1}, {"us": ["a"], "other": ["a", "b"]}),
        ({"a": 1}, BOTH),
        ({}, BOTH),
    ],
    ids=["its pattern has a new topic", "another's has", "partitions are gone", "the topic is"],
)
async def test_a_leader_that_comes_back_shares_when_anything_has_changed(
    topics: Mapping[str, int], wants: Mapping[str, Collection[str]]
) -> None:
    script = Script(topics, {"us": {"a": [0]}, "other": {"a": [1]}}, wants)
    await come_back(script)
    assert len(script.plans) == 1


async def test_a_leader_that_comes_back_disturbs_nobody_where_nothing_has_changed() -> None:
    script = Script({"a": 2, "b": 5}, {"us": {"a": [0]}, "other": {"a": [1]}}, BOTH)
    membership = await come_back(script)
    assert (script.joins, script.plans) == (1, [])
    script.topics = {"a": 3}  # and from then on it watches as before
    membership.metadata_changed()
    assert membership._again.is_set()


async def test_a_leader_that_cannot_find_out_shares_anew() -> None:
    script = Script({"a": 2}, {"us": {"a": [0]}, "other": {"a": [1]}}, BOTH, describes=False)
    await come_back(script)
    assert len(script.plans) == 1


@pytest.mark.parametrize(
    ("wants", "leader", "joins"),
    [
        (["a"], "other", 1),
        (["a", "b"], "other", 2),
        (["b"], "other", 2),
        (["a"], "us, before", 2),
    ],
    ids=["as before", "one topic more", "another topic", "a broker before KIP-814"],
)
async def test_a_follower_that_comes_back_asks_for_what_the_plan_has_not_got(
    wants: list[str], leader: str, joins: int
) -> None:
    """If its topics have changed; or if the broker takes its former self for the leader."""
    script = Script(
        {"a": 2, "b": 1},
        {"us": {"a": [0]}, "other": {"a": [1]}},
        {"us": wants, "other": ["a"]},
        leader,
    )
    await come_back(script)
    assert script.joins == joins


@pytest.mark.parametrize("leader", ["us", "other"])
async def test_who_comes_back_with_another_subscription_does_not_keep_the_old_share(
    leader: str,
) -> None:
    """Everything wanted is read, but a part of it by a member that does not want it any more."""
    given: dict[str, Places] = {"us": {"a": [0]}, "other": {"a": [1], "b": [0]}}
    script = Script({"a": 2, "b": 1}, given, {"us": ["b"], "other": ["a", "b"]}, leader)
    await come_back(script)
    assert script.joins == 2


async def test_only_who_has_a_place_to_come_back_to_looks() -> None:
    script = Script({"a": 2}, {"us": {"a": [0]}, "other": {"a": [1]}}, BOTH, "other")
    await come_back(script, instance=None)
    assert script.described == 0
