"""What the gate lets through, takes out and leaves out: partial answers, listings, names, ids."""

from typing import Any

import pytest

from balancer.registry.commands import CreateTopic
from tests.broker.batches import batch
from tests.broker.security.rulings import ALICE, ROOT, Ruled, rule
from tests.broker.world import World
from wire.acls import OPERATIONS, Operation, PatternType, Permission, ResourceType
from wire.error_codes import ErrorCode
from wire.messages import (
    assigned_groups,
    fetch,
    group_admin,
    membership,
    metadata,
    offsets,
    produce,
    producer_ids,
    topics,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IDS = {"mine": b"m" * 16, "other": b"o" * 16}


@pytest.fixture
def ruled() -> Ruled:
    world = World()
    for name, topic_id in IDS.items():
        world.run(CreateTopic(name, topic_id, 1, 3, {}))
    return Ruled(world)


def about(operation: Operation, name: str = "mine", kind: ResourceType = TOPIC) -> Any:
    return rule(operation, kind, name)


def produce_to(*names: str, acks: int = -1) -> produce.ProduceRequest:
    data = [
        produce.TopicProduceData(one, [produce.PartitionProduceData(0, batch("x"))])
        for one in names
    ]
    return produce.ProduceRequest(None, acks, 1000, data)


def outcomes(answer: Any) -> dict[str, int]:
    return {one.name: one.partition_responses[0].error_code for one in answer.responses}


# -- Produce ---------------------------------------------------------------------------------------


def test_a_produce_is_partly_appended(ruled: Ruled) -> None:
    ruled.allow(about(Operation.WRITE))
    answer = ruled.ask(produce_to("other", "mine", "unknown"), 9)
    assert outcomes(answer) == {"mine": 0, "other": DENIED, "unknown": DENIED}
    assert len(answer.responses) == 3, "each is answered once"
    assert ruled.world[1].statistics.produce_batches == 1, "and nothing else is appended"


@pytest.mark.parametrize("names", [("other",), ("other", "mine")])
def test_without_acks_the_connection_ends_as_in_kafka(ruled: Ruled, names: tuple[str, ...]) -> None:
    ruled.allow(about(Operation.WRITE))
    asked = ruled.send(produce_to(*names, acks=0), 9)
    ruled.world.cluster.settle()
    assert asked.reply.closed == "Topic authorization failed."


def test_the_fast_path_ends_with_the_permission(ruled: Ruled) -> None:
    """The third request of a connection is not decoded any more, and still decided on."""
    write = about(Operation.WRITE)
    ruled.allow(write)
    requests = ruled.world[1].api.requests
    for _ in range(3):
        assert outcomes(ruled.ask(produce_to("mine"), 9)) == {"mine": 0}
    connection = ruled.world.connection(1, str(ALICE))
    assert connection.fast_paths
    before = ruled.world[1].statistics.produce_batches
    ruled.revoke(write)
    assert outcomes(ruled.ask(produce_to("mine"), 9)) == {"mine": DENIED}
    assert ruled.world[1].statistics.produce_batches == before
    ruled.allow(write)
    assert outcomes(ruled.ask(produce_to("mine"), 9)) == {"mine": 0}
    assert requests[0] == 5


def test_the_fast_path_is_that_of_a_principal(ruled: Ruled) -> None:
    """Authenticated again as somebody else, the same connection may do what that one may."""
    ruled.allow(about(Operation.WRITE))
    for _ in range(2):
        ruled.ask(produce_to("mine"), 9)
    connection = ruled.world.connection(1, str(ALICE))
    assert connection.fast_paths
    ruled.world.connection(1, "bob's").fast_paths = connection.fast_paths
    connection.principal = type(ALICE)("User", "bob")
    asked = ruled.world.ask(1, produce_to("mine"), 9, client=str(ALICE))
    assert outcomes(asked) == {"mine": DENIED}


# -- Fetch and Metadata: names, ids, listings ------------------------------------------------------


def fetch_of(version: int, *names: str) -> fetch.FetchRequest:
    some = [fetch.FetchPartition(0, partition_max_bytes=1000)]
    return fetch.FetchRequest(
        topics=[
            fetch.FetchTopic(one, partitions=some)
            if version < 13
            else fetch.FetchTopic(topic_id=IDS.get(one, b"?" * 16), partitions=some)
            for one in names
        ]
    )


def test_a_fetch_is_partly_answered(ruled: Ruled) -> None:
    ruled.allow(about(Operation.READ))
    answer = ruled.ask(fetch_of(12, "other", "mine", "unknown"), 12)
    errors = {one.topic: one.partitions[0].error_code for one in answer.responses}
    assert errors == {"mine": 0, "other": DENIED, "unknown": DENIED}


def test_by_id_nothing_is_told_of_what_may_not_be_described(ruled: Ruled) -> None:
    ruled.allow(about(Operation.READ))
    answer = ruled.ask(fetch_of(13, "other", "mine", "unknown"), 13)
    errors = {one.topic_id: one.partitions[0].error_code for one in answer.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert errors == {IDS["mine"]: 0, IDS["other"]: unknown, b"?" * 16: unknown}
    ruled.allow(about(Operation.DESCRIBE, "other"))
    answer = ruled.ask(fetch_of(13, "other"), 13)
    assert answer.responses[0].partitions[0].error_code == DENIED


def metadata_of(*names: str, **flags: bool) -> metadata.MetadataRequest:
    named = [metadata.MetadataRequestTopic(name=one) for one in names]
    return metadata.MetadataRequest(named, False, **flags)


EVERYTHING = metadata.MetadataRequest(None, False)


def test_all_topics_are_those_that_may_be_described(ruled: Ruled) -> None:
    ruled.allow(about(Operation.READ))
    assert [one.name for one in ruled.ask(EVERYTHING, 12).topics] == ["mine"]
    assert {one.name for one in ruled.ask(EVERYTHING, 12, ROOT).topics} == set(IDS)
    assert [one.name for one in ruled.ask(EVERYTHING, 12).topics] == ["mine"], "not from the cache"


def test_by_name_a_denied_topic_looks_as_one_that_does_not_exist(ruled: Ruled) -> None:
    ruled.allow(about(Operation.DESCRIBE))
    answer = ruled.ask(metadata_of("other", "mine", "unknown"), 12)
    told = {one.name: (one.error_code, one.topic_id, one.partitions) for one in answer.topics}
    assert told["mine"][0] == ErrorCode.NONE
    assert told["other"] == told["unknown"] == (DENIED, bytes(16), [])
    assert answer.brokers


def test_metadata_by_id_leaks_nothing(ruled: Ruled) -> None:
    asked = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(topic_id=one) for one in (*IDS.values(), b"?" * 16)], False
    )
    ruled.allow(about(Operation.DESCRIBE))
    told = {one.topic_id: (one.error_code, one.name) for one in ruled.ask(asked, 12).topics}
    assert told[IDS["mine"]] == (0, "mine")
    assert told[IDS["other"]] == told[b"?" * 16] == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize(
    ("granted", "creates"),
    [
        ([], False),
        ([(Operation.DESCRIBE, "new", TOPIC)], False),
        ([(Operation.DESCRIBE, "new", TOPIC), (Operation.CREATE, "new", TOPIC)], True),
        ([(Operation.DESCRIBE, "new", TOPIC), (Operation.CREATE, "kafka-cluster", CLUSTER)], True),
        ([(Operation.CREATE, "kafka-cluster", CLUSTER)], False),
    ],
)
def test_who_may_not_create_a_topic_creates_none_by_asking(granted: Any, creates: bool) -> None:
    ruled = Ruled(World(auto_create_topics=True))
    ruled.allow(*(rule(op, kind, name) for op, name, kind in granted))
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="new")], True)
    sent = ruled.send(asked, 12)
    ruled.world.advance(2_000)
    (topic,) = sent.response.topics
    assert topic.error_code == (ErrorCode.NONE if creates else DENIED)
    assert ("new" in ruled.world[1].registry.topics) is creates


def test_operations_are_those_that_are_allowed(ruled: Ruled) -> None:
    ruled.allow(about(Operation.READ), about(Operation.ALTER_CONFIGS))
    flags = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    answer = ruled.ask(metadata_of("mine", **flags), 10)
    wanted = (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE_CONFIGS,
    )
    assert answer.topics[0].topic_authorized_operations == sum(1 << one for one in wanted)
    assert answer.cluster_authorized_operations == 0, "it may not describe the cluster"
    all_of_it = ruled.ask(metadata_of("mine", **flags), 10, ROOT)
    every = sum(1 << one for one in OPERATIONS[CLUSTER])
    assert all_of_it.cluster_authorized_operations == every
    described = ruled.ask(metadata.DescribeClusterRequest(True), 1)
    assert described.cluster_authorized_operations == 0


def test_pages_of_topics_have_those_that_may_be_described(ruled: Ruled) -> None:
    ruled.allow(about(Operation.DESCRIBE))
    listed = ruled.ask(metadata.DescribeTopicPartitionsRequest([]), 0)
    assert [one.name for one in listed.topics] == ["mine"]
    assert listed.topics[0].topic_authorized_operations == 1 << Operation.DESCRIBE
    named = [metadata.PartitionsOfTopic(one) for one in ("other", "mine", "unknown")]
    answer = ruled.ask(metadata.DescribeTopicPartitionsRequest(named), 0)
    errors = {one.name: one.error_code for one in answer.topics}
    assert errors == {"mine": 0, "other": DENIED, "unknown": DENIED}
    nothing = ruled.ask(metadata.DescribeTopicPartitionsRequest(named[:1]), 0)
    assert [one.name for one in nothing.topics] == ["other"], "not all, because none is left"


# -- topics ----------------------------------------------------------------------------------------


def test_topics_are_created_one_by_one_and_their_settings_hidden(ruled: Ruled) -> None:
    ruled.allow(rule(Operation.CREATE, TOPIC, "a-", pattern_type=PatternType.PREFIXED))
    wanted = [topics.CreatableTopic(name, 1, 1) for name in ("a-1", "b-1")]
    sent = ruled.send(topics.CreateTopicsRequest(wanted, 1000), 7)
    ruled.world.advance(100)
    told = {one.name: one for one in sent.response.topics}
    assert (told["a-1"].error_code, told["b-1"].error_code) == (0, DENIED)
    assert told["a-1"].topic_config_error_code == DENIED
    assert told["a-1"].num_partitions == -1
    assert told["a-1"].configs is None


def test_deleting_by_id_tells_only_those_who_may_describe(ruled: Ruled) -> None:
    ruled.allow(about(Operation.DESCRIBE))
    states = [topics.DeleteTopicState(None, one) for one in (*IDS.values(), b"?" * 16)]
    sent = ruled.send(topics.DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
    ruled.world.advance(100)
    errors = {one.topic_id: one.error_code for one in sent.response.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert errors == {IDS["mine"]: DENIED, IDS["other"]: unknown, b"?" * 16: unknown}
    assert set(ruled.world[1].registry.topics) == set(IDS)


def test_deleting_by_name_in_old_versions(ruled: Ruled) -> None:
    sent = ruled.send(topics.DeleteTopicsRequest(topic_names=["mine"], timeout_ms=1000), 5)
    ruled.world.advance(100)
    assert sent.response.responses[0].error_code == DENIED


# -- groups ----------------------------------------------------------------------------------------


def commit(ruled: Ruled, group: str, *names: str) -> Any:
    rows = [
        offsets.OffsetCommitRequestTopic(one, [offsets.OffsetCommitRequestPartition(0, 7)])
        for one in names
    ]
    return ruled.ask(offsets.OffsetCommitRequest(group, -1, topics=rows), 8, ROOT)


def test_groups_are_listed_for_those_who_may_describe_them(ruled: Ruled) -> None:
    for group in ("g1", "g2"):
        commit(ruled, group, "mine")

    def listed() -> list[str]:
        return sorted(one.group_id for one in ruled.ask(group_admin.ListGroupsRequest(), 4).groups)

    assert listed() == []
    ruled.allow(about(Operation.READ, "g2", GROUP))
    assert listed() == ["g2"]
    ruled.allow(rule(Operation.DESCRIBE))
    assert listed() == ["g1", "g2"], "who may describe the cluster sees all"


@pytest.mark.parametrize("version", [7, 8])
def test_offsets_are_those_of_topics_that_may_be_described(ruled: Ruled, version: int) -> None:
    commit(ruled, "g", "mine", "other")
    ruled.allow(about(Operation.DESCRIBE, "g", GROUP), about(Operation.DESCRIBE))

    def fetched(named: tuple[str, ...] | None) -> dict[str, tuple[int, int]]:
        rows = None
        if named is not None:
            rows = [offsets.OffsetFetchRequestTopic(one, [0]) for one in named]
        if version < 8:
            answer = ruled.ask(offsets.OffsetFetchRequest("g", topics=rows), version)
        else:
            group = offsets.OffsetFetchRequestGroup("g", topics=rows)
            answer = ruled.ask(offsets.OffsetFetchRequest(groups=[group]), version).groups[0]
        assert answer.error_code == 0
        return {
            one.name: (one.partitions[0].committed_offset, one.partitions[0].error_code)
            for one in answer.topics
        }

    assert fetched(None) == {"mine": (7, 0)}
    assert fetched(("other", "mine")) == {"mine": (7, 0), "other": (-1, DENIED)}
    assert fetched(("other",)) == {"other": (-1, DENIED)}


def test_commits_are_partly_made(ruled: Ruled) -> None:
    ruled.allow(about(Operation.READ, "g", GROUP), about(Operation.READ))
    rows = [
        offsets.OffsetCommitRequestTopic(one, [offsets.OffsetCommitRequestPartition(0, 7)])
        for one in ("mine", "other")
    ]
    answer = ruled.ask(offsets.OffsetCommitRequest("g", -1, topics=rows), 8)
    errors = {one.name: one.partitions[0].error_code for one in answer.topics}
    assert errors == {"mine": 0, "other": DENIED}


def test_coordinators_of_old_versions_are_found_with_permission(ruled: Ruled) -> None:
    asked = membership.FindCoordinatorRequest("g", 0)
    assert ruled.ask(asked, 3).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    ruled.allow(about(Operation.DESCRIBE, "g", GROUP))
    assert ruled.ask(asked, 3).error_code == 0


def test_a_pattern_that_matches_what_may_not_be_described_is_refused(ruled: Ruled) -> None:
    ruled.allow(about(Operation.READ, "g", GROUP), about(Operation.DESCRIBE))

    def joined(pattern: str) -> int:
        asked = assigned_groups.ConsumerGroupHeartbeatRequest(
            "g",
            "m" * 22,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=pattern,
            topic_partitions=[],
        )
        code: int = ruled.ask(asked, 1).error_code
        return code

    assert joined("o.*") == DENIED
    assert joined("mi.*") == 0


def test_a_group_with_topics_that_may_not_be_described_is_not_described(ruled: Ruled) -> None:
    asked = assigned_groups.ConsumerGroupHeartbeatRequest(
        "g",
        "m" * 22,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["mine", "other"],
        topic_partitions=[],
    )
    assert ruled.ask(asked, 1, ROOT).error_code == 0
    ruled.allow(about(Operation.DESCRIBE, "g", GROUP), about(Operation.DESCRIBE))
    describe = assigned_groups.ConsumerGroupDescribeRequest(["g"])
    (group,) = ruled.ask(describe, 1).groups
    assert (group.error_code, group.members) == (DENIED, [])
    ruled.allow(about(Operation.DESCRIBE, "other"))
    (group,) = ruled.ask(describe, 1).groups
    assert group.error_code == 0
    assert len(group.members) == 1


def test_a_producer_id_is_for_those_who_may_write_somewhere(ruled: Ruled) -> None:
    asked = producer_ids.InitProducerIdRequest()
    assert ruled.ask(asked, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    write = about(Operation.WRITE, "anything")
    ruled.allow(write)
    assert ruled.ask(asked, 4).error_code == 0
    ruled.allow(rule(Operation.WRITE, TOPIC, "*", permission=Permission.DENY))
    assert ruled.ask(asked, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# -- hosts, large requests, the audit log ----------------------------------------------------------


def test_rules_of_other_hosts_do_not_count(ruled: Ruled) -> None:
    ruled.allow(rule(Operation.READ, TOPIC, "mine", host="192.0.2.1"))
    assert not ruled.ask(EVERYTHING, 12).topics


def test_a_large_request_is_decided_in_portions(ruled: Ruled) -> None:
    ruled.allow(about(Operation.DESCRIBE))
    names = [f"unknown-{number}" for number in range(2_000)]
    sent = ruled.send(metadata_of("mine", *names, "other"), 12)
    ruled.world.advance(2_000)
    errors = {one.name: one.error_code for one in sent.response.topics}
    assert errors == dict.fromkeys((*names, "other"), DENIED) | {"mine": 0}


def test_the_audit_log_says_who_what_whence_and_why(ruled: Ruled) -> None:
    deny = about(Operation.ALL)._replace(permission=Permission.DENY)
    ruled.allow(about(Operation.READ), deny)
    ruled.ask(fetch_of(12, "mine"), 12)
    (entry,) = ruled.entries
    assert entry.pop("time_ms") > 0
    assert entry == {
        "event": "denied",
        "principal": "User:alice",
        "host": "198.51.100.7",
        "api": "Fetch",
        "operation": "Read",
        "resource_type": "Topic",
        "resource": "mine",
        "why": "a rule denies it",
        "rule": "deny User:alice All on Topic mine",
    }
    authorizer = ruled.world[1].broker.authorizer
    assert authorizer is not None
    assert authorizer.denied == {"Read": 1}


def test_what_is_left_out_of_a_listing_is_nobodys_attempt(ruled: Ruled) -> None:
    ruled.ask(EVERYTHING, 12)
    ruled.ask(group_admin.ListGroupsRequest(), 4)
    assert not ruled.entries


def test_grants_are_written_where_that_is_wanted() -> None:
    world = World()
    world.run(CreateTopic("mine", IDS["mine"], 1, 3, {}))
    ruled = Ruled(world, grants=True)
    ruled.allow(about(Operation.WRITE))
    for _ in range(3):
        ruled.ask(produce_to("mine"), 9)
    assert [one["event"] for one in ruled.entries] == ["allowed"] * 3, "also of the fast path"
    assert ruled.entries[0]["rule"] == "allow User:alice Write on Topic mine"


def test_the_audit_log_is_bounded_and_says_what_it_left_out(ruled: Ruled) -> None:
    for _ in range(1_200):
        ruled.ask(fetch_of(12, "mine"), 12)
    audit = ruled.world[1].broker.authorizer.audit  # type: ignore[union-attr]
    assert audit is not None
    assert (len(ruled.entries), audit.left_out) == (1_000, 200)
    ruled.world.advance(1_000)
    ruled.ask(fetch_of(12, "mine"), 12)
    assert ruled.entries[-1]["left_out"] == 200


def test_names_that_no_topic_can_have_are_not_kept(ruled: Ruled) -> None:
    """A request may name what it likes; what is kept of it must have a bound."""
    authorizer = ruled.world[1].broker.authorizer
    assert authorizer is not None
    ruled.allow(about(Operation.WRITE))
    ruled.ask(produce_to("mine", "x" * 30_000), 9)
    assert max(len(key[-1]) for kept in authorizer._caches for key in kept) < 300
