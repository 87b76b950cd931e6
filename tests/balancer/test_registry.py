"""The rules of the registry, told as stories about small clusters."""

from collections import Counter

import attrs
import pytest

from balancer.registry.codec import decode_result, encode_command
from balancer.registry.commands import (
    AllocateProducerIds,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    DrainNode,
    FoundCluster,
    MergePlacement,
    PartitionsCreated,
    PauseBalancer,
    PlacementSet,
    ProducerIds,
    Refusal,
    Refused,
    ReleaseStealToken,
    Result,
    TokenGranted,
    TokenRefused,
    TokenReleased,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.image import decode_image, encode_image
from balancer.registry.records import (
    CONFIG_VALUE_CHARS_MAX,
    CONFIGS_MAX,
    HISTORY_MAX,
    NODES_MAX,
    TOKEN_MARGIN_NS,
    TOPIC_PARTITIONS_MAX,
    UIDS_END,
    Outcome,
    PartitionUid,
    StealToken,
)
from balancer.registry.registry import Registry
from paxos.ids import MS, GroupId, Incarnation, NodeId
from tests.balancer.literals import acquire, founded, placement, register, run


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def topic(name: str, partitions: int = 1, number: int = 1, **kwargs: object) -> CreateTopic:
    return CreateTopic(name, topic_id(number), partitions, **kwargs)  # type: ignore[arg-type]


def refusal(result: Result) -> Refusal | None:
    return result.reason if isinstance(result, Refused | TokenRefused) else None


def one(registry: Registry, command: Command) -> Result:
    return run(registry, command)[0]


def granted(result: Result) -> StealToken:
    assert isinstance(result, TokenGranted), result
    return result.token


# ---- cluster and nodes ---------------------------------------------------------------------------


def test_a_cluster_is_founded_once() -> None:
    """The first FoundCluster wins; a repetition is accepted, a different one is refused."""
    registry = Registry()
    assert refusal(one(registry, topic("early"))) is Refusal.NOT_FOUNDED
    run(registry, FoundCluster("first", 3))
    assert isinstance(one(registry, FoundCluster("first", 3)), Done)
    assert refusal(one(registry, FoundCluster("second", 3))) is Refusal.ALREADY_FOUNDED
    assert refusal(one(registry, FoundCluster("first", 4))) is Refusal.ALREADY_FOUNDED
    assert list(registry.groups) == [0, 1, 2, 3]


def test_a_node_registers_anew_at_every_boot() -> None:
    """A newer incarnation replaces, the same one repeats, an older one is too late."""
    registry = founded(nodes=())
    run(registry, register(1, 4, zone="a"))
    seen = registry.versions
    run(registry, register(1, 4, zone="a"))
    assert registry.versions == seen
    run(registry, register(1, 5, zone="b"))
    assert registry.versions.nodes == seen.nodes + 1
    assert refusal(one(registry, register(1, 4))) is Refusal.STALE_INCARNATION
    assert registry.nodes[NodeId(1)].zone == "b"


def test_the_number_of_nodes_has_a_limit() -> None:
    registry = founded(nodes=tuple(range(NODES_MAX)))
    assert refusal(one(registry, register(NODES_MAX))) is Refusal.TOO_MANY_NODES
    assert isinstance(one(registry, register(0, 2)), Done)


def test_a_drained_node_stays_drained_over_a_restart() -> None:
    """Only the operator removes the flag."""
    registry = founded()
    run(registry, DrainNode(NodeId(2), True), register(2, 2))
    assert registry.nodes[NodeId(2)].draining
    assert refusal(one(registry, DrainNode(NodeId(9), True))) is Refusal.UNKNOWN_NODE


# ---- topics --------------------------------------------------------------------------------------


def test_partitions_are_spread_evenly_over_the_data_groups() -> None:
    """The emptiest group gets the next partition; group 0 has only the registry."""
    registry = founded(groups=3)
    run(registry, topic("a", 4, 1), topic("b", 1, 2), topic("c", 4, 3))
    groups = [place.group for place in registry.topics["a"].partitions]
    assert groups == [1, 2, 3, 1]
    assert [place.group for place in registry.topics["b"].partitions] == [2]
    assert Counter(one.group for one in registry.partitions.values()) == {1: 3, 2: 3, 3: 3}


def test_without_data_groups_everything_lives_in_group_0() -> None:
    registry = founded(groups=0)
    run(registry, topic("a", 2))
    assert {one.group for one in registry.partitions.values()} == {0}


def told(registry: Registry, name: str, leases: dict[int, int]) -> list[int]:
    """The leader epochs of a topic's partitions."""
    places = registry.topics[name].partitions
    return [leases[place.group] + registry.epoch_base(place.uid) for place in places]


def test_the_leader_epochs_of_a_new_topic_are_above_those_of_all_that_are_gone() -> None:
    """Whatever groups its partitions are placed in, and however few changes of master those had."""
    registry = founded(groups=3)
    leases = {1: 900, 2: 5, 3: 40}
    run(registry, topic("a", 3, 1), topic("other", 1, 9))
    assert told(registry, "a", leases) == [900, 5, 40]
    highest = 900
    for number in range(2, 6):
        run(registry, DeleteTopic("a", None, {GroupId(one): leases[one] for one in leases}))
        leases[number % 3 + 1] += 1
        run(registry, topic("a", 3, number))
        grown = one(registry, CreatePartitions("a", 5))
        assert isinstance(grown, PartitionsCreated)
        assert min(told(registry, "a", leases)) > highest
        highest = max(told(registry, "a", leases))
        assert highest < 2_000  # they do not rise by the group's earlier epochs
    assert told(registry, "other", leases) == [leases[1]]
    assert Registry.restore(registry.snapshot()).snapshot() == registry.snapshot()


def test_leader_epochs_end_somewhere() -> None:
    registry = founded(groups=1)
    run(registry, topic("a", 1, 1), DeleteTopic("a", None, {GroupId(1): 2**31 - 1}))
    run(registry, topic("a", 1, 2))
    (place,) = registry.topics["a"].partitions
    assert registry.epoch_base(place.uid) == 0  # the lease is above all that clients saw
    run(registry, topic("b", 1, 3))
    assert registry.image().epoch_floor == 2**30


def test_uids_are_never_used_again() -> None:
    """A node that was away may still hold data of a deleted topic under its uid."""
    registry = founded()
    run(registry, topic("a", 3, 1))
    deleted = one(registry, DeleteTopic(name="a"))
    assert isinstance(deleted, TopicDeleted)
    created = one(registry, topic("a", 3, 2))
    assert isinstance(created, TopicCreated)
    old = {place.uid for place in deleted.topic.partitions}
    assert old.isdisjoint(place.uid for place in created.topic.partitions)
    assert set(registry.partitions) == {place.uid for place in created.topic.partitions}
    assert all(map(registry.is_gone, old))
    assert not any(map(registry.is_gone, registry.partitions))
    assert not registry.is_gone(max(registry.partitions) + 1), "we may only be behind"


def test_uids_that_are_used_up_are_a_refusal_and_no_exception() -> None:
    """An apply that raised would stop the registry on every node, for ever."""
    founded_image = decode_image(founded().snapshot())
    registry = Registry.restore(
        encode_image(attrs.evolve(founded_image, next_uid=PartitionUid(UIDS_END - 3)))
    )
    refused = decode_result(registry.apply(encode_command(topic("a", 4)), 1_000))
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.TOO_MANY_PARTITIONS
    assert isinstance(
        decode_result(registry.apply(encode_command(topic("a", 3)), 1_000)), TopicCreated
    )
    refused = decode_result(registry.apply(encode_command(CreatePartitions("a", 4)), 1_000))
    assert isinstance(refused, Refused)
    assert Registry.restore(registry.snapshot()).snapshot() == registry.snapshot()


def test_a_topic_is_found_by_name_by_id_and_by_partition() -> None:
    registry = founded()
    run(registry, topic("a", 2, 7))
    found = registry.topic("a")
    assert found is not None
    assert registry.topic_by_id(topic_id(7)) == found
    assert registry.topic_by_id(topic_id(8)) is None
    for index, (uid, group) in enumerate(found.partitions):
        partition = registry.partition(uid)
        assert partition is not None
        assert (partition.topic, partition.index, partition.group) == ("a", index, group)
        assert uid in registry.partitions_of_group(group)


def test_the_same_create_request_twice_is_one_topic() -> None:
    """A retried proposal (same id) succeeds again; another client's (other id) does not."""
    registry = founded()
    first = one(registry, topic("a", 2, 1))
    version = registry.version
    assert one(registry, topic("a", 2, 1)) == first
    assert registry.version == version
    assert refusal(one(registry, topic("a", 2, 2))) is Refusal.TOPIC_EXISTS
    assert refusal(one(registry, topic("b", 2, 1))) is Refusal.INVALID_TOPIC_ID


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (topic(""), Refusal.INVALID_NAME),
        (topic("."), Refusal.INVALID_NAME),
        (topic(".."), Refusal.INVALID_NAME),
        (topic("a b"), Refusal.INVALID_NAME),
        (topic("größe"), Refusal.INVALID_NAME),
        (topic("x" * 250), Refusal.INVALID_NAME),
        (topic("a", 0), Refusal.INVALID_PARTITIONS),
        (topic("a", -1), Refusal.INVALID_PARTITIONS),
        (topic("a", TOPIC_PARTITIONS_MAX + 1), Refusal.TOO_MANY_PARTITIONS),
        (topic("a", 2**31 - 1), Refusal.TOO_MANY_PARTITIONS),
        (topic("a", number=0), Refusal.INVALID_TOPIC_ID),
        (topic("a", replication=0), Refusal.INVALID_REPLICATION),
        (topic("a", configs={str(n): "" for n in range(65)}), Refusal.INVALID_CONFIGS),
        (topic("a", configs={"k": "v" * 5_000}), Refusal.INVALID_CONFIGS),
        (CreatePartitions("none", 3), Refusal.UNKNOWN_TOPIC),
        (DeleteTopic(name="none"), Refusal.UNKNOWN_TOPIC),
        (DeleteTopic(topic_id=topic_id(99)), Refusal.UNKNOWN_TOPIC),
        (DeleteTopic(), Refusal.UNKNOWN_TOPIC),
    ],
    ids=str,
)
def test_bad_topic_commands_are_refused_by_reason(command: Command, reason: Refusal) -> None:
    """... and change nothing."""
    registry = founded()
    run(registry, topic("other", 1, 50))
    before, versions = registry.topics.copy(), registry.versions  # type: ignore[attr-defined]
    assert refusal(one(registry, command)) is reason
    assert (registry.topics, registry.versions) == (before, versions)


def test_the_longest_allowed_topic_name() -> None:
    assert isinstance(one(founded(), topic("x" * 249)), TopicCreated)


def test_partitions_can_only_be_added() -> None:
    """The old ones stay in their groups, the new ones go to the emptiest groups."""
    registry = founded(groups=4)
    run(registry, topic("a", 3))
    old = registry.topics["a"].partitions
    grown = one(registry, CreatePartitions("a", 5))
    assert isinstance(grown, PartitionsCreated)
    assert grown.first_new == 3
    assert grown.topic.partitions[:3] == old
    assert [place.group for place in grown.topic.partitions[3:]] == [4, 1]
    for total in (5, 2):
        assert refusal(one(registry, CreatePartitions("a", total))) is Refusal.INVALID_PARTITIONS
    assert (
        refusal(one(registry, CreatePartitions("a", TOPIC_PARTITIONS_MAX + 1)))
        is Refusal.TOO_MANY_PARTITIONS
    )


def test_settings_are_changed_one_by_one_or_replaced() -> None:
    registry = founded()
    run(registry, CreateTopic("a", topic_id(1), 1, 3, {"x": "1", "y": "2"}))
    before = registry.version

    def configured(command: ConfigureTopic) -> tuple[Result, dict[str, str]]:
        return one(registry, command), dict(registry.topics["a"].configs)

    same = ConfigureTopic("a", topic_id(1), {"x": "1"})
    assert configured(same) == (Done(before), {"x": "1", "y": "2"})
    changed = ConfigureTopic("a", topic_id(1), {"z": "3"}, removed=("x", "never there"))
    assert configured(changed) == (Done(before + 1), {"y": "2", "z": "3"})
    replaced = ConfigureTopic("a", topic_id(1), {"x": "4"}, replace=True)
    assert configured(replaced) == (Done(before + 2), {"x": "4"})
    assert Registry.restore(registry.snapshot()).topics["a"].configs == {"x": "4"}


def test_settings_of_another_topic_of_that_name_stay() -> None:
    registry = founded()
    run(registry, topic("a", 1, 1))
    for stale in (ConfigureTopic("a", topic_id(2), {}), ConfigureTopic("b", topic_id(1), {})):
        assert refusal(one(registry, stale)) is Refusal.UNKNOWN_TOPIC
    long = ConfigureTopic("a", topic_id(1), {"x": "v" * (CONFIG_VALUE_CHARS_MAX + 1)})
    assert refusal(one(registry, long)) is Refusal.INVALID_CONFIGS
    many = ConfigureTopic("a", topic_id(1), {str(n): "" for n in range(CONFIGS_MAX + 1)})
    assert refusal(one(registry, many)) is Refusal.INVALID_CONFIGS
    assert registry.topics["a"].configs == {}


def test_delete_by_name_and_id_must_mean_the_same_topic() -> None:
    """A client with an old id does not delete the topic that took over the name."""
    registry = founded()
    run(registry, topic("a", 1, 1), topic("b", 1, 2))
    mixed = DeleteTopic(name="a", topic_id=topic_id(2))
    assert refusal(one(registry, mixed)) is Refusal.UNKNOWN_TOPIC
    stale = DeleteTopic(name="gone", topic_id=topic_id(2))
    assert refusal(one(registry, stale)) is Refusal.UNKNOWN_TOPIC
    assert isinstance(one(registry, DeleteTopic(topic_id=topic_id(2))), TopicDeleted)
    assert list(registry.topics) == ["a"]


def test_producer_ids_are_handed_out_in_blocks_that_never_overlap() -> None:
    registry = founded()
    blocks = run(registry, *[AllocateProducerIds(NodeId(n), 1_000) for n in (1, 2, 1)])
    assert blocks == [ProducerIds(0, 1_000), ProducerIds(1_000, 1_000), ProducerIds(2_000, 1_000)]
    assert refusal(one(registry, AllocateProducerIds(NodeId(1), 0))) is Refusal.INVALID_COUNT


# ---- placement -----------------------------------------------------------------------------------


def test_E8_the_ideal_placement_is_versioned_and_compare_and_set() -> None:
    """Of two planners that saw the same version one wins; the other has to look again."""
    registry = founded()
    assert one(registry, placement({1: 1, 2: 2}, expected=0)) == PlacementSet(1)
    assert refusal(one(registry, placement({1: 2}, expected=0))) is Refusal.PLACEMENT_CONFLICT
    assert one(registry, placement({1: 1, 2: 2}, expected=1)) == PlacementSet(1), "no change"
    merge = MergePlacement(1, GroupId(3), NodeId(3))
    assert one(registry, merge) == PlacementSet(2)
    assert registry.placement == {1: 1, 2: 2, 3: 3}
    assert one(registry, placement({1: 3})) == PlacementSet(3), "None: whatever the version"


def test_a_placement_names_known_groups_and_nodes() -> None:
    registry = founded(groups=2)
    assert refusal(one(registry, placement({3: 1}))) is Refusal.UNKNOWN_GROUP
    assert refusal(one(registry, placement({1: 9}))) is Refusal.UNKNOWN_NODE
    assert registry.versions.placement == 0


def test_versions_tell_the_shell_what_has_changed() -> None:
    """Each part has its own counter, and a refusal or a repetition changes none."""
    registry = founded()
    run(registry, placement({1: 2}))
    seen = registry.versions
    run(registry, topic("a"))
    assert registry.versions == seen._replace(all=seen.all + 1, topics=seen.topics + 1)
    seen = registry.versions
    run(registry, PauseBalancer(True), PauseBalancer(True), topic("a", 1, 2))
    assert registry.versions == seen._replace(all=seen.all + 1, steals=seen.steals + 1)


# ---- the steal token -----------------------------------------------------------------------------


def placed() -> Registry:
    """All masters on node 1; groups 2 and 3 belong on nodes 2 and 3."""
    registry = founded()
    run(registry, placement({1: 1, 2: 2, 3: 3, 4: 1}))
    return registry


def test_E10_one_token_in_the_whole_cluster() -> None:
    """While node 2 holds it, node 3 is refused, with node 2's name; when it is given back it is
    free."""
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2)))
    refused = one(registry, acquire(3, 1, 3, now_ms=5))
    assert refused == TokenRefused(Refusal.TOKEN_HELD, GroupId(3), 1, token)
    assert one(registry, ReleaseStealToken(token.token, Outcome.DONE, 4_000)) == TokenReleased(
        token.token, True
    )
    assert granted(one(registry, acquire(3, 1, 3, now_ms=10))).token == token.token + 1
    assert [(past.group, past.outcome) for past in registry.history] == [(2, Outcome.DONE)]


def test_a_token_is_taken_over_only_safely_after_its_expiry() -> None:
    """Not at the expiry but a margin later, by the asker's clock, which is in the command."""
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2)))
    edge_ms = (token.expires_wall_ns + TOKEN_MARGIN_NS - token.acquired_wall_ns) / MS
    assert refusal(one(registry, acquire(3, 1, 3, now_ms=edge_ms))) is Refusal.TOKEN_HELD
    assert granted(one(registry, acquire(3, 1, 3, now_ms=edge_ms + 1))).group == 3
    assert registry.history[-1].outcome is Outcome.EXPIRED


def test_a_repeated_request_gets_the_same_token() -> None:
    """The answer was lost and the proposal was sent again: it is still one steal."""
    registry = placed()
    first = granted(one(registry, acquire(2, 1, 2)))
    version = registry.version
    assert granted(one(registry, acquire(2, 1, 2))) == first
    assert registry.version == version
    assert refusal(one(registry, acquire(2, 1, 2, attempt=2))) is Refusal.TOKEN_HELD


def test_a_token_is_given_back_once() -> None:
    """A late copy of a release does not take away the next holder's token."""
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2)))
    release = ReleaseStealToken(token.token, Outcome.ABORTED, 1)
    run(registry, release, acquire(3, 1, 3))
    assert one(registry, release) == TokenReleased(token.token, False)
    assert registry.token is not None
    assert registry.token.group == 3


@pytest.mark.parametrize(
    ("before", "command", "reason"),
    [
        (None, acquire(2, 1, 2, placement_version=0), Refusal.STALE_PLAN),
        (None, acquire(2, 1, 3), Refusal.NOT_MISPLACED),
        (None, acquire(2, 2, 2), Refusal.NOT_MISPLACED),
        (None, acquire(2, 1, 9), Refusal.UNKNOWN_NODE),
        (None, acquire(2, 1, 2, target_incarnation=0), Refusal.STALE_INCARNATION),
        (None, acquire(2, 1, 2, duration_ns=0), Refusal.INVALID_DURATION),
        (None, acquire(2, 1, 2, duration_ns=2**62), Refusal.INVALID_DURATION),
        (PauseBalancer(True), acquire(2, 1, 2), Refusal.PAUSED),
        (PauseBalancer(True, GroupId(2)), acquire(2, 1, 2), Refusal.PAUSED),
        (DrainNode(NodeId(2), True), acquire(2, 1, 2), Refusal.NODE_DRAINING),
    ],
    ids=str,
)
def test_E16_the_registry_checks_again_before_a_steal(
    before: Command | None, command: Command, reason: Refusal
) -> None:
    """Whatever the asker believes, the token is only for a steal that is still wanted."""
    registry = placed()
    if before is not None:
        run(registry, before)
    assert refusal(one(registry, command)) is reason
    assert registry.token is None


def test_a_lease_is_stolen_once_per_version() -> None:
    """A node that has not seen the finished steal asks with the old lease version: it is
    refused."""
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2, master_version=10)))
    run(registry, ReleaseStealToken(token.token, Outcome.DONE, 1))
    late = acquire(2, 1, 2, master_version=10, attempt=2)
    assert refusal(one(registry, late)) is Refusal.STALE_MASTER
    granted(one(registry, acquire(2, 3, 2, master_version=11, attempt=3)))


def test_an_aborted_steal_may_be_tried_again_from_the_same_version() -> None:
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2)))
    run(registry, ReleaseStealToken(token.token, Outcome.ABORTED, 1))
    granted(one(registry, acquire(2, 1, 2, attempt=2)))


def test_pausing_one_group_leaves_the_others() -> None:
    """The global pause and those of groups are independent."""
    registry = placed()
    run(registry, PauseBalancer(True, GroupId(2)), PauseBalancer(True), PauseBalancer(False))
    assert refusal(one(registry, acquire(2, 1, 2))) is Refusal.PAUSED
    run(registry, PauseBalancer(False, GroupId(2)))
    granted(one(registry, acquire(2, 1, 2)))
    assert refusal(one(registry, PauseBalancer(True, GroupId(77)))) is Refusal.UNKNOWN_GROUP


def test_the_registry_remembers_only_the_last_steals() -> None:
    registry = placed()
    for attempt in range(HISTORY_MAX + 5):
        token = granted(one(registry, acquire(2, 1, 2, attempt=attempt)))
        run(registry, ReleaseStealToken(token.token, Outcome.ABORTED, 7))
    assert len(registry.history) == HISTORY_MAX
    assert registry.history[-1].token == HISTORY_MAX + 5
    assert registry.history[-1].duration_us == 7


def test_a_restarted_node_does_not_inherit_a_token() -> None:
    """The token names the incarnation, so the new one cannot mistake it for its own."""
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2)))
    run(registry, register(2, 2))
    same_attempt = acquire(2, 1, 2, target_incarnation=2)
    assert refusal(one(registry, same_attempt)) is Refusal.TOKEN_HELD
    assert token.target_incarnation == Incarnation(1)


def test_an_image_stays_what_it_is_while_the_registry_goes_on() -> None:
    """It is encoded later: what happens meanwhile is not in it."""
    registry = placed()
    token = granted(one(registry, acquire(2, 1, 2)))
    image = registry.image()
    before = encode_image(image)
    run(registry, ReleaseStealToken(token.token, Outcome.DONE, 4_000), register(1, 2))
    assert encode_image(image) == before
