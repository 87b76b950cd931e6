"""Settings of existing topics change at run time; those that cannot be changed are refused."""

import pytest

from broker.handlers.topics.broker_settings import broker_settings
from broker.handlers.topics.registry_changes import EVERYWHERE_NS
from broker.proposals.intake import FailureReason, NotDone
from broker.topic_configs import is_compacted, is_deleted
from paxos.ids import MS, REGISTRY_GROUP, NodeId
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def world_with(**configs: str) -> World:
    world = World()
    named = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
    world.ask(1, CreateTopicsRequest([CreatableTopic("t", 1, 3, configs=named)]), 7)
    return world


def settings_of(world: World, node: int = 1) -> dict[str, str]:
    topic = world[node].registry.topic("t")
    assert topic is not None
    return dict(topic.configs)


def replace(world: World, *configs: tuple[str, str | None], version: int = 2) -> int:
    named = [AlterableConfig(name, value) for name, value in configs]
    request = AlterConfigsRequest([AlterConfigsResource(TOPIC, "t", named)])
    return world.ask(3, request, version).responses[0].error_code


def change(world: World, *configs: tuple[str, int, str | None], **fields: object) -> int:
    named = [IncrementalAlterableConfig(*one) for one in configs]
    resource = IncrementalAlterConfigsResource(TOPIC, "t", named)
    request = IncrementalAlterConfigsRequest([resource], **fields)
    return world.ask(3, request, 1).responses[0].error_code


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(version: int) -> None:
    """The client asks node 3 while the registry's master is node 1; node 3 shows the change when it
    answers."""
    world = world_with(retention_ms="1", segment_bytes="1048576")
    assert replace(world, ("retention.ms", "2"), version=version) == ErrorCode.NONE
    assert settings_of(world, 3) == {"retention.ms": "2"}


def test_single_settings_are_changed_and_the_others_stay() -> None:
    world = world_with(retention_ms="1", segment_bytes="1048576")
    wanted = (("retention.bytes", SET, "7"), ("segment.bytes", DELETE, None))
    assert change(world, *wanted) == ErrorCode.NONE
    assert settings_of(world) == {"retention.bytes": "7", "retention.ms": "1"}
    assert change(world, ("cleanup.policy", APPEND, "delete")) == ErrorCode.NONE
    assert settings_of(world)["cleanup.policy"] == "delete"
    assert change(world, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert settings_of(world)["cleanup.policy"] == "delete,compact"
    assert change(world, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE
    assert settings_of(world)["cleanup.policy"] == "compact"


def test_settings_that_contradict_each_other_are_refused() -> None:
    """Whether they come together or one after the other."""
    world = world_with()
    both = (("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5"))
    assert change(world, *both) == ErrorCode.INVALID_CONFIG
    assert change(world, both[0]) == ErrorCode.NONE
    assert change(world, both[1]) == ErrorCode.INVALID_CONFIG
    assert replace(world, ("max.compaction.lag.ms", "5")) == ErrorCode.NONE


def test_two_clients_that_change_different_settings_do_not_undo_each_other() -> None:
    world = world_with()
    both = [("retention.ms", "1"), ("retention.bytes", "2")]
    asked = []
    for node, (name, value) in zip((2, 3), both, strict=True):
        config = IncrementalAlterableConfig(name, SET, value)
        resource = IncrementalAlterConfigsResource(TOPIC, "t", [config])
        asked.append(world.send(node, IncrementalAlterConfigsRequest([resource]), 1))
    world.advance(100)
    assert [one.response.responses[0].error_code for one in asked] == [0, 0]
    assert settings_of(world) == dict(both)


def begin_change(world: World, value: str, node: int = 3) -> Asked:
    named = [IncrementalAlterableConfig("retention.ms", SET, value)]
    resource = IncrementalAlterConfigsResource(TOPIC, "t", named)
    return world.send(node, IncrementalAlterConfigsRequest([resource]), 1)


def test_a_change_that_was_stuck_does_not_undo_a_later_one() -> None:
    """F1: the first attempt is stuck on a link; a second one and another client's are
    acknowledged."""
    world = world_with()
    asked = begin_change(world, "1")
    (stuck,) = world.cluster.queues[REGISTRY_GROUP]
    world.cluster.queues[REGISTRY_GROUP].clear()
    stuck.done(NotDone(FailureReason.UNKNOWN))
    world.advance(100)
    assert asked.response.responses[0].error_code == ErrorCode.NONE
    assert change(world, ("retention.ms", SET, "2")) == ErrorCode.NONE
    world.cluster.queues[REGISTRY_GROUP].append(stuck._replace(done=lambda _outcome: None))
    world.cluster.settle()
    assert settings_of(world) == {"retention.ms": "2"}


def test_two_changes_at_the_same_time_both_come_about() -> None:
    """The second in the log is refused, as it did not know of the first, and is decided again."""
    world = world_with()
    first, second = begin_change(world, "1", node=2), begin_change(world, "2", node=3)
    world.cluster.settle()
    for asked in (first, second):
        assert asked.response.responses[0].error_code == ErrorCode.NONE
    assert settings_of(world) == {"retention.ms": "2"}


def test_a_node_that_is_behind_decides_anew_when_it_has_caught_up() -> None:
    world = world_with()
    world.cluster.lagging.add(NodeId(3))
    assert begin_change(world, "1", node=2)
    world.cluster.settle()
    asked = begin_change(world, "2", node=3)
    world.advance(100)
    assert not asked.settled
    assert settings_of(world) == {"retention.ms": "1"}
    world.cluster.catch_up(3)
    world.advance(20)
    assert asked.response.responses[0].error_code == ErrorCode.NONE
    assert settings_of(world) == {"retention.ms": "2"}


def test_a_client_that_has_hung_up_undoes_nothing_that_was_acknowledged_since() -> None:
    """Its node waited for the registry's master, which had stopped; the client asked another node
    for something else. When the first attempt reaches the log it is refused, and is not decided
    again."""
    world = world_with()
    asked = begin_change(world, "1", node=3)
    world.cluster.lagging.add(NodeId(3))
    (stuck,) = world.cluster.queues[REGISTRY_GROUP]
    world.cluster.queues[REGISTRY_GROUP].clear()
    asked.reply.hung_up = True
    later = begin_change(world, "2", node=2)
    world.advance(EVERYWHERE_NS // MS + 100)  # node 3 is alive, and does not report that it has it
    assert later.response.responses[0].error_code == ErrorCode.NONE
    world.cluster.queues[REGISTRY_GROUP].append(stuck)
    world.cluster.settle()
    world.cluster.catch_up(3)
    world.advance(60_000)
    assert settings_of(world) == {"retention.ms": "2"}
    assert not world.cluster.queues[REGISTRY_GROUP]


def test_what_is_read_when_its_client_has_hung_up_is_not_done() -> None:
    """The node was stopped, with the request in its socket."""
    world = world_with()
    named = [IncrementalAlterableConfig("retention.ms", SET, "1")]
    resource = IncrementalAlterConfigsResource(TOPIC, "t", named)
    world.send(3, IncrementalAlterConfigsRequest([resource]), 1, hung_up=True)
    world.send(3, DeleteTopicsRequest(["t"], timeout_ms=1_000), 1, hung_up=True)
    topics = [CreatableTopic("other", 1, 3)]
    world.send(3, CreateTopicsRequest(topics), 7, hung_up=True)
    world.advance(2_000)
    world.cluster.settle()
    assert settings_of(world) == {}
    assert world[1].registry.topic("other") is None


@pytest.mark.parametrize("since", [None, "1", "2"])
def test_a_change_whose_first_attempt_was_carried_out_unheard(since: str | None) -> None:
    """It is done if the settings are as asked. Otherwise nobody knows: it was done, and changed
    again."""
    world = world_with()
    world[3].groups.answers_to_lose = 1
    asked = begin_change(world, "1")
    world.cluster.settle()
    assert settings_of(world) == {"retention.ms": "1"}
    if since is not None:
        other = begin_change(world, since, node=2)
        world.cluster.settle()
        assert other.response.responses[0].error_code == ErrorCode.NONE
    assert not asked.settled
    world.advance(1_500)
    told = ErrorCode.REQUEST_TIMED_OUT if since == "2" else ErrorCode.NONE
    assert asked.response.responses[0].error_code == told
    assert settings_of(world) == {"retention.ms": since or "1"}


def test_a_topic_of_the_same_name_is_not_configured_instead() -> None:
    world = world_with()
    asked = begin_change(world, "1")
    queue = world.cluster.queues[REGISTRY_GROUP]
    stuck = queue.pop()
    world.ask(1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    world.ask(1, CreateTopicsRequest([CreatableTopic("t", 1, 3)]), 7)
    queue.append(stuck)
    world.advance(200)
    answer = asked.response.responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert settings_of(world) == {}


def test_validating_changes_nothing() -> None:
    world = world_with()
    assert change(world, ("retention.ms", SET, "1"), validate_only=True) == ErrorCode.NONE
    assert settings_of(world) == {}


@pytest.mark.parametrize(
    "wanted",
    [
        ("no.such.setting", SET, "1"),
        ("no.such.setting", APPEND, "1"),
        ("retention.ms", SET, "soon"),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", 9, "1"),
        ("cleanup.policy", APPEND, "shrink"),
        ("cleanup.policy", APPEND, ""),
        ("cleanup.policy", SET, "compact,"),
        ("message.timestamp.type", SET, "Tomorrow"),
        ("max.message.bytes", SET, "1_000"),
        ("max.message.bytes", SET, "\u00a05"),
        ("retention.ms", SET, "- 5"),
        ("retention.ms", SET, "9" * 5_000),
        ("min.cleanable.dirty.ratio", SET, "NaN"),
        ("min.cleanable.dirty.ratio", SET, "9" * 400),
        ("leader.replication.throttled.replicas", SET, "*,*"),
    ],
)
def test_what_cannot_be_kept_is_refused(wanted: tuple[str, int, str | None]) -> None:
    world = world_with(retention_ms="5")
    assert change(world, wanted) == ErrorCode.INVALID_CONFIG
    assert settings_of(world) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "\t+5\n", "5"),
        ("retention.ms", "-01", "-1"),
        ("retention.ms", "\u0663", "3"),
        ("retention.ms", "0" * 50 + "7", "7"),
        ("max.message.bytes", " 1000", "1000"),
        ("compression.gzip.level", "+5", "5"),
        ("min.cleanable.dirty.ratio", " .5 ", "0.5"),
        ("min.cleanable.dirty.ratio", "5e-1f", "0.5"),
        ("preallocate", " TRUE ", "true"),
        ("compression.type", " gzip ", "gzip"),
        ("cleanup.policy", " compact , delete,compact ", "compact,delete"),
        ("cleanup.policy", " ", ""),
        ("leader.replication.throttled.replicas", " * ", "*"),
        ("leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
    ],
)
def test_what_kafka_reads_over_is_not_kept(name: str, value: str, kept: str) -> None:
    """Blanks, plus signs, leading zeros and repetitions: no reader of the setting meets them."""
    world = world_with()
    assert change(world, (name, SET, value)) == ErrorCode.NONE
    assert settings_of(world) == {name: kept}
    assert replace(world, (name, value)) == ErrorCode.NONE
    assert settings_of(world) == {name: kept}


def test_a_topic_may_have_no_cleanup_policy() -> None:
    """Then nothing is deleted by age, and nothing compacted (KIP-1161); appending begins anew."""
    world = world_with(cleanup_policy="compact")
    assert change(world, ("cleanup.policy", SUBTRACT, "compact,delete")) == ErrorCode.NONE
    kept = settings_of(world)
    assert kept == {"cleanup.policy": ""}
    assert not is_compacted(kept)
    assert not is_deleted(kept)
    assert change(world, ("cleanup.policy", APPEND, "delete")) == ErrorCode.NONE
    assert settings_of(world) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", ErrorCode.INVALID_REQUEST),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_name_that_no_topic_can_have_is_told_as_such(name: str, error: ErrorCode) -> None:
    world = world_with()
    rows = [IncrementalAlterableConfig("retention.ms", SET, "1")]
    asked = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(2, name, rows)])
    assert world.ask(1, asked, 1).responses[0].error_code == error
    replaced = AlterConfigsRequest([AlterConfigsResource(2, name, [])])
    assert world.ask(1, replaced, 2).responses[0].error_code == error


@pytest.mark.parametrize(
    ("group", "name", "value", "error"),
    [
        ("", "consumer.session.timeout.ms", "45000", ErrorCode.INVALID_REQUEST),
        ("g", "nonsense", "1", ErrorCode.INVALID_CONFIG),
        ("g", "consumer.session.timeout.ms", "x", ErrorCode.INVALID_CONFIG),
        ("g", "consumer.session.timeout.ms", "7", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_of_groups_are_read_before_they_are_refused(
    group: str, name: str, value: str, error: ErrorCode
) -> None:
    world = world_with()
    rows = [IncrementalAlterableConfig(name, SET, value)]
    asked = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(32, group, rows)])
    assert world.ask(1, asked, 1).responses[0].error_code == error


def test_a_setting_named_twice_or_without_a_value_is_refused() -> None:
    """As in Kafka, whose error for that is about the request."""
    world = world_with()
    twice = (("retention.ms", "1"), ("retention.ms", "2"))
    assert replace(world, *twice) == ErrorCode.INVALID_REQUEST
    assert replace(world, ("retention.ms", None)) == ErrorCode.INVALID_REQUEST
    assert change(world, ("retention.ms", SET, None)) == ErrorCode.INVALID_REQUEST
    again = (("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert change(world, *again) == ErrorCode.INVALID_REQUEST


def test_any_setting_may_be_deleted() -> None:
    """MirrorMaker deletes `remote.log.delete.on.disable`, and what it does not know, together with
    what it sets; kafka-reassign-partitions deletes throttles of all nodes."""
    world = world_with(retention_ms="1", flush_ms="7")
    slot = world[1].registry.applied
    assert change(world, ("no.such.setting", DELETE, None)) == ErrorCode.NONE
    assert world[1].registry.applied == slot
    assert change(world, ("remote.log.delete.on.disable", DELETE, None)) == ErrorCode.NONE
    assert world[1].registry.applied > slot  # a known one goes through the log
    wanted = (
        ("no.such.setting", DELETE, None),
        ("flush.ms", DELETE, "9"),
        ("retention.bytes", SET, "8"),
    )
    assert change(world, *wanted) == ErrorCode.NONE
    assert settings_of(world, 3) == {"retention.bytes": "8", "retention.ms": "1"}


def test_a_refused_resource_does_not_fail_the_others() -> None:
    world = world_with()
    for name in ("u", "v"):
        world.ask(1, CreateTopicsRequest([CreatableTopic(name, 1, 3)]), 7)
    named = {
        "t": [IncrementalAlterableConfig("retention.ms", SET, "1")],
        "u": [IncrementalAlterableConfig("no.such.setting", SET, "1")],
        "v": [IncrementalAlterableConfig("retention.ms", SET, "2")],
    }
    resources = [IncrementalAlterConfigsResource(TOPIC, *one) for one in named.items()]
    answers = world.ask(2, IncrementalAlterConfigsRequest(resources), 1).responses
    assert [one.error_code for one in answers] == [0, ErrorCode.INVALID_CONFIG, 0]
    assert settings_of(world) == {"retention.ms": "1"}


THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


@pytest.mark.parametrize(
    ("kind", "name", "sets"),
    [
        (BROKER, "1", ("num.partitions", "9")),
        (BROKER, "", ("num.io.threads", "9")),
        (GROUP, "g", ("consumer.session.timeout.ms", "9")),
        (16, "m", ("metrics", "*")),
        (8, "1", ("root", "DEBUG")),
    ],
)
def test_what_is_not_a_topic_has_no_settings_to_set_but_any_to_delete(
    kind: int, name: str, sets: tuple[str, str]
) -> None:
    world = world_with()

    def verdict(*named: tuple[str, int, str | None]) -> tuple[int, str | None]:
        configs = [IncrementalAlterableConfig(*one) for one in named]
        resource = IncrementalAlterConfigsResource(kind, name, configs)
        [answer] = world.ask(1, IncrementalAlterConfigsRequest([resource]), 1).responses
        return answer.error_code, answer.error_message

    deletes = [(one, DELETE, None) for one in THROTTLES]
    assert verdict(*deletes) == (ErrorCode.NONE, None)
    for operation in (SET, APPEND, SUBTRACT):
        error, text = verdict(*deletes, (sets[0], operation, sets[1]))
        assert error == ErrorCode.INVALID_REQUEST
        assert text is not None
        assert text.startswith(f"{sets[0]} cannot be set: ")


def test_a_consumer_group_may_be_given_the_settings_it_has() -> None:
    world = world_with()
    for value, error in (("45000", ErrorCode.NONE), ("45001", ErrorCode.INVALID_REQUEST)):
        named = [IncrementalAlterableConfig("consumer.session.timeout.ms", SET, value)]
        resource = IncrementalAlterConfigsResource(GROUP, "g", named)
        [answer] = world.ask(1, IncrementalAlterConfigsRequest([resource]), 1).responses
        assert answer.error_code == error


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("leader.replication.throttled.rate", "1000000", ErrorCode.NONE),
        ("follower.replication.throttled.rate", "1000000", ErrorCode.NONE),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "1", ErrorCode.NONE),
        ("leader.replication.throttled.rate", "fast", ErrorCode.INVALID_CONFIG),
        ("num.io.threads", "9", ErrorCode.INVALID_REQUEST),
    ],
)
def test_throttles_of_nodes_are_accepted_and_change_nothing(
    name: str, value: str, error: ErrorCode
) -> None:
    """kafka-reassign-partitions --throttle sets them, and every --verify deletes them."""
    world = world_with()
    named = [IncrementalAlterableConfig(name, SET, value)]
    resource = IncrementalAlterConfigsResource(BROKER, "1", named)
    [answer] = world.ask(1, IncrementalAlterConfigsRequest([resource]), 1).responses
    assert answer.error_code == error
    rate = {one.name: one.value for one in broker_settings(world[1].broker)}
    assert rate["leader.replication.throttled.rate"] == str(2**63 - 1)


def test_each_resource_has_its_own_verdict() -> None:
    world = world_with()
    resources = [
        AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", "1")]),
        AlterConfigsResource(TOPIC, "none", []),
        AlterConfigsResource(BROKER, "1", [AlterableConfig("num.partitions", "9")]),
        AlterConfigsResource(GROUP, "g", []),
        AlterConfigsResource(99, "2", []),
        AlterConfigsResource(BROKER, "2", []),
        AlterConfigsResource(BROKER, "2", []),
    ]
    answers = world.ask(1, AlterConfigsRequest(resources), 2).responses
    assert [(one.resource_type, one.resource_name, one.error_code) for one in answers] == [
        (TOPIC, "t", ErrorCode.NONE),
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.NONE),
        (99, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
    ]
    assert "configuration file" in answers[2].error_message
    assert "twice" in answers[5].error_message


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("retention.ms", "-1", ErrorCode.NONE),
        ("retention.ms", "-2", ErrorCode.INVALID_CONFIG),
        ("retention.ms", "1h", ErrorCode.INVALID_CONFIG),
        ("retention.bytes", "-7", ErrorCode.NONE),
        ("segment.bytes", "1048576", ErrorCode.NONE),
        ("segment.bytes", "1048575", ErrorCode.INVALID_CONFIG),
        ("segment.bytes", "2147483648", ErrorCode.INVALID_CONFIG),
        ("segment.ms", "1", ErrorCode.NONE),
        ("segment.ms", "0", ErrorCode.INVALID_CONFIG),
    ],
)
def test_how_long_records_are_kept_is_checked_as_kafka_does(
    name: str, value: str, error: ErrorCode
) -> None:
    world = world_with()
    assert change(world, (name, SET, value)) == error
    assert settings_of(world) == ({name: value} if error is ErrorCode.NONE else {})
