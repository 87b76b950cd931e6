"""Stories about topics, settings, placement and the cluster."""

from collections.abc import Sequence
from typing import Any, Final

from tests.broker.batches import batch
from tests.compat.side_by_side.peer import Peer, Which
from tests.compat.side_by_side.records import NOWHERE, produce
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.logs import DescribableLogDirTopic, DescribeLogDirsRequest
from wire.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

NEWEST: Final = Which.NEWEST
ILLEGAL: Final = ("", ".", "..", "a/b", "a b", "ä", "a" * 250)
TOPIC: Final = 2
BROKER: Final = 4


SOFTWARE: Final = (
    ("a", ""), ("", "1"), ("a b", "1"), ("a", "1 2"), ("a.b-c", "1.2-3"), ("a_b", "1"),
    ("a", "1_2"), (".a", "1"), ("a-", "1"), ("a", "-1"), ("a", "1."), ("ä", "1"), ("a", "1+2"),
    ("a" * 300, "1"), ("a\n", "1"), ("a/b", "v1.0"), ("-", "1"),
)  # fmt: skip


def versions(peer: Peer) -> None:
    peer.ask("with a name", ApiVersionsRequest("side-by-side", "1"))
    peer.ask("with an empty name", ApiVersionsRequest("", ""), least=3)
    peer.ask("with an illegal name", ApiVersionsRequest("-no-", "1 2"), least=3)
    for name, version in SOFTWARE:
        peer.ask(f"by {name!r} {version!r}", ApiVersionsRequest(name, version), least=3)


def metadata(peer: Peer) -> None:
    topic_id = peer.topic("md", partitions=2)

    def ask(what: str, *names: str, least: int = 0, **options: bool) -> None:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        peer.ask(what, MetadataRequest(wanted, False, **options), least=least)

    ask("of a topic", "md")
    ask("of a topic twice", "md", "md")
    ask("of a topic that is not there", "nobody")
    for name in ILLEGAL:
        ask(f"of {name[:5]!r}", name)
    peer.ask("of none", MetadataRequest([], False), least=1)
    ask("with what is allowed", "md", least=8, include_topic_authorized_operations=True)
    ask(
        "with what is allowed in the cluster",
        "md",
        least=8,
        include_cluster_authorized_operations=True,
    )
    by_id = lambda one, name=None: MetadataRequest([MetadataRequestTopic(one, name)], False)  # noqa: E731
    peer.ask("by id", by_id(topic_id), least=12)
    peer.ask("by an id that is not there", by_id(NOWHERE), least=12)
    peer.ask("by id and name", by_id(topic_id, "md"), least=12)
    peer.ask("by an id that is not there, and a name", by_id(NOWHERE, "md"), least=12)
    peer.ask("by neither", by_id(bytes(16)), least=12)
    peer.ask(
        "of a topic, which may be created",
        MetadataRequest([MetadataRequestTopic(name="new")], True),
    )


def create(*topics: CreatableTopic, **options: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(list(topics), **{"timeout_ms": 5_000, **options})


def creating(peer: Peer) -> None:
    def ask(what: str, *topics: CreatableTopic, **options: Any) -> None:
        peer.ask(what, create(*topics, **options), NEWEST)

    peer.ask("a topic", lambda version: create(CreatableTopic(f"c{version}", 1, 1)))
    ask("by default", CreatableTopic("c-default", -1, -1))
    ask("what is there", CreatableTopic("c-default", 1, 1))
    ask("only to see", CreatableTopic("c-only", 1, 1), validate_only=True)
    ask("only to see what is there", CreatableTopic("c-default", 1, 1), validate_only=True)
    ask("nothing")
    for name in ILLEGAL:
        ask(f"{name[:5]!r}", CreatableTopic(name, 1, 1))
    peer.topic("c.dot")
    ask("a dot that meets an underscore", CreatableTopic("c_dot", 1, 1))
    ask("an internal name", CreatableTopic("__consumer_offsets_not", 1, 1))
    for count in (0, -2, 1_000_000):
        ask(f"{count} partitions", CreatableTopic("c-count", count, 1))
    for factor in (0, -2, 2, 30_000):
        ask(f"{factor} replicas", CreatableTopic("c-factor", 1, factor))
    ask("twice", CreatableTopic("c-twice", 1, 1), CreatableTopic("c-twice", 1, 1))
    bad = CreatableTopicConfig("nonsense", "1")
    ask("there, with a bad setting", CreatableTopic("c-default", 1, 1, configs=[bad]))
    ask("an illegal name and a bad setting", CreatableTopic("a/b", 1, 1, configs=[bad]))
    ask("no partitions and a bad setting", CreatableTopic("c-bad", 0, 1, configs=[bad]))
    ask("no partitions and no replicas", CreatableTopic("c-bad", 0, 0))
    ask("there, without partitions", CreatableTopic("c-default", 0, 1))
    twice = [CreatableTopic("c-tw", 1, 1), CreatableTopic("c-tw", 2, 1)]
    ask("twice, and another", *twice, CreatableTopic("c-once", 1, 1))
    ask("three times", *[CreatableTopic("c-three", 1, 1)] * 3)
    ask("an illegal name twice", *[CreatableTopic("a/b", 1, 1)] * 2)
    ask("twice, only to see", *twice, validate_only=True)
    ask("in no time", CreatableTopic("c-soon", 1, 1), timeout_ms=0)
    ask("in negative time", CreatableTopic("c-never", 1, 1), timeout_ms=-1)
    by_hand = lambda *rows: [CreatableReplicaAssignment(p, list(nodes)) for p, nodes in rows]  # noqa: E731
    hand = lambda what, *rows, count=-1, factor=-1: ask(  # noqa: E731
        what, CreatableTopic("c-hand", count, factor, by_hand(*rows)), validate_only=True
    )
    hand("by hand", (0, [1]), (1, [1]))
    hand("by hand, and a number of partitions", (0, [1]), count=1)
    hand("by hand, and a number of replicas", (0, [1]), factor=1)
    hand("by hand, an unknown node", (0, [77]))
    hand("by hand, a node twice", (0, [1, 1]))
    hand("by hand, no nodes", (0, []))
    hand("by hand, not from 0", (1, [1]))
    hand("by hand, a partition twice", (0, [1]), (0, [1]))
    hand("by hand, a negative partition", (-1, [1]))


SETTINGS: Final = (
    ("retention.ms", "1000"), ("retention.ms", "-1"), ("retention.ms", "-2"),
    ("retention.ms", "x"), ("retention.ms", ""), ("retention.ms", None), ("retention.ms", " 7 "),
    ("retention.bytes", "-1"), ("retention.bytes", "0"), ("retention.bytes", "-5"),
    ("cleanup.policy", "compact"), ("cleanup.policy", "delete,compact"), ("cleanup.policy", ""),
    ("cleanup.policy", "nonsense"), ("cleanup.policy", "compact,compact"),
    ("cleanup.policy", "Delete"), ("compression.type", "producer"), ("compression.type", "gzip"),
    ("compression.type", "zstd"), ("compression.type", "uncompressed"),
    ("compression.type", "nonsense"), ("compression.gzip.level", "5"),
    ("compression.gzip.level", "99"), ("compression.zstd.level", "3"),
    ("compression.lz4.level", "9"), ("segment.bytes", "1048576"), ("segment.bytes", "14"),
    ("segment.bytes", "10"), ("segment.bytes", "3000000000"), ("segment.ms", "1000"),
    ("segment.ms", "0"), ("segment.jitter.ms", "0"), ("segment.jitter.ms", "-1"),
    ("segment.index.bytes", "4"), ("segment.index.bytes", "10485760"),
    ("index.interval.bytes", "4096"), ("index.interval.bytes", "-1"),
    ("max.message.bytes", "0"), ("max.message.bytes", "1000"), ("max.message.bytes", "-1"),
    ("max.message.bytes", "2147483647"), ("min.insync.replicas", "1"),
    ("min.insync.replicas", "2"), ("min.insync.replicas", "0"), ("flush.messages", "1"),
    ("flush.messages", "0"), ("flush.ms", "1000"), ("flush.ms", "-1"),
    ("file.delete.delay.ms", "0"), ("file.delete.delay.ms", "-1"), ("preallocate", "true"),
    ("preallocate", "maybe"), ("unclean.leader.election.enable", "true"),
    ("unclean.leader.election.enable", "false"), ("unclean.leader.election.enable", "TRUE"),
    ("message.timestamp.type", "CreateTime"), ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "nonsense"), ("message.timestamp.before.max.ms", "0"),
    ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.after.max.ms", "1000"),
    ("message.timestamp.difference.max.ms", "1000"), ("message.format.version", "3.0"),
    ("message.downconversion.enable", "true"), ("min.cleanable.dirty.ratio", "0.5"),
    ("min.cleanable.dirty.ratio", "1.5"), ("min.cleanable.dirty.ratio", "x"),
    ("min.compaction.lag.ms", "0"), ("min.compaction.lag.ms", "-1"),
    ("max.compaction.lag.ms", "1"), ("max.compaction.lag.ms", "0"),
    ("delete.retention.ms", "0"), ("delete.retention.ms", "-1"),
    ("remote.storage.enable", "true"), ("remote.storage.enable", "false"),
    ("remote.log.copy.disable", "true"), ("remote.log.delete.on.disable", "false"),
    ("local.retention.ms", "-2"), ("local.retention.ms", "1000"), ("local.retention.ms", "-3"),
    ("local.retention.bytes", "-2"), ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1"),
    ("leader.replication.throttled.replicas", "nonsense"),
    ("follower.replication.throttled.replicas", ""), ("nonsense", "1"), ("", "1"),
    ("retention.ms", "+5"), ("retention.ms", "0x10"), ("retention.ms", "1e3"),
    ("retention.ms", "5.0"), ("retention.ms", "1_000"), ("retention.ms", "5L"),
    ("retention.ms", "\u0665"), ("retention.ms", "007"), ("retention.ms", "9223372036854775808"),
    ("retention.ms", "\t7\n"), ("retention.ms", "\u00a07"), ("retention.ms", "- 7"),
    ("retention.ms", "-0"), ("retention.ms", " "), ("segment.bytes", " 1048576 "),
    ("segment.bytes", "+1048576"), ("segment.bytes", "2147483648"),
    ("min.cleanable.dirty.ratio", " 0.5 "), ("min.cleanable.dirty.ratio", ".5"),
    ("min.cleanable.dirty.ratio", "5e-1"), ("min.cleanable.dirty.ratio", "0.5f"),
    ("min.cleanable.dirty.ratio", "0.5d"), ("min.cleanable.dirty.ratio", "NaN"),
    ("min.cleanable.dirty.ratio", "Infinity"), ("min.cleanable.dirty.ratio", "-0"),
    ("min.cleanable.dirty.ratio", "-0.1"), ("min.cleanable.dirty.ratio", "1"),
    ("min.cleanable.dirty.ratio", "0x1p-1"), ("min.cleanable.dirty.ratio", ""),
    ("min.cleanable.dirty.ratio", "+0.5"), ("min.cleanable.dirty.ratio", "0_5"),
    ("cleanup.policy", " compact "), ("cleanup.policy", "compact , delete"),
    ("cleanup.policy", "compact,"), ("cleanup.policy", ",compact"), ("cleanup.policy", ","),
    ("cleanup.policy", " "), ("cleanup.policy", None), ("cleanup.policy", "compact,delete,compact"),
    ("compression.type", " gzip "), ("compression.type", ""), ("compression.type", "GZIP"),
    ("preallocate", " true "), ("preallocate", ""), ("preallocate", "1"),
    ("message.timestamp.type", " CreateTime"), ("message.timestamp.type", "createtime"),
    ("compression.gzip.level", " 5 "), ("compression.gzip.level", "0"),
    ("compression.gzip.level", "+5"), ("max.message.bytes", " 1000 "),
    ("leader.replication.throttled.replicas", ""), ("leader.replication.throttled.replicas", " * "),
    ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", "0:1, 1:1"),
    ("leader.replication.throttled.replicas", "0:1,0:1"),
    ("leader.replication.throttled.replicas", "0:1,"),
    ("leader.replication.throttled.replicas", "*,0:1"),
    ("leader.replication.throttled.replicas", "*,*"),
    ("leader.replication.throttled.replicas", "0:-1"),
    ("leader.replication.throttled.replicas", "0:1:2"), (" retention.ms", "1"),
    ("Retention.ms", "1"), ("local.retention.bytes", " -2 "),
    ("remote.storage.enable", " false "), ("unclean.leader.election.enable", ""),
)  # fmt: skip
"""Every kind of setting, right and wrong."""


def settings_at_birth(peer: Peer) -> None:
    """CreateTopics with a setting."""
    for number, (name, value) in enumerate(SETTINGS):
        topic = CreatableTopic(f"set-{number}", 1, 1, configs=[CreatableTopicConfig(name, value)])
        peer.ask(f"{name}={value}", create(topic, validate_only=True), NEWEST)
    pairs = [CreatableTopicConfig("retention.ms", one) for one in ("1", "2")]
    bad = [CreatableTopicConfig("retention.ms", one) for one in ("x", "2")]
    for what, rows in (
        ("a bad value, then a good one", bad),
        ("a good value, then a bad one", bad[::-1]),
    ):
        topic = CreatableTopic("set-both", 1, 1, configs=rows)
        peer.ask(what, create(topic, validate_only=True), NEWEST)
    null = [CreatableTopicConfig("retention.ms", one) for one in (None, "2")]
    for what, rows in (("null, then a value", null), ("a value, then null", null[::-1])):
        topic = CreatableTopic("set-null", 1, 1, configs=rows)
        peer.ask(what, create(topic, validate_only=True), NEWEST)
    twice = CreatableTopic("set-twice", 1, 1, configs=pairs)
    peer.ask("a setting twice", create(twice, validate_only=True), NEWEST)
    lags = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    pairs = [CreatableTopicConfig(*pair) for pair in lags.items()]
    peer.ask("min above max", create(CreatableTopic("set-lag", 1, 1, configs=pairs)), NEWEST)


def incremental(
    name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, only: bool = False
) -> IncrementalAlterConfigsRequest:
    rows = [IncrementalAlterableConfig(*one) for one in changes]
    return IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, rows)], only)


def settings_changed(peer: Peer) -> None:
    """IncrementalAlterConfigs and AlterConfigs."""
    peer.topic("sc", partitions=1)
    for name, value in SETTINGS:
        peer.ask(f"{name}={value}", incremental("sc", (name, 0, value), only=True), NEWEST)
    changed_step_by_step(peer)
    odd_changes(peer)
    read_over(peer)
    other_resources(peer)
    replaced(peer)


def changed_step_by_step(peer: Peer) -> None:
    ask = lambda what, *rest, **options: peer.ask(what, incremental(*rest, **options))  # noqa: E731
    ask("set", "sc", ("retention.ms", 0, "1000"))
    ask("delete", "sc", ("retention.ms", 1, None))
    ask("delete what is not set", "sc", ("retention.ms", 1, None))
    ask("delete what is not known", "sc", ("nonsense", 1, None))
    ask("delete with a value", "sc", ("retention.ms", 1, "5"))
    ask("append", "sc", ("cleanup.policy", 2, "compact"))
    ask("append what is there", "sc", ("cleanup.policy", 2, "compact"))
    ask("append nonsense", "sc", ("cleanup.policy", 2, "nonsense"))
    ask("remove", "sc", ("cleanup.policy", 3, "compact"))
    ask("remove what is not there", "sc", ("cleanup.policy", 3, "compact"))
    ask("append to a number", "sc", ("retention.ms", 2, "5"))
    ask("remove from a number", "sc", ("retention.ms", 3, "5"))
    ask("append to what is not known", "sc", ("nonsense", 2, "5"))
    ask("append null", "sc", ("cleanup.policy", 2, None))
    ask("an operation that is not there", "sc", ("retention.ms", 9, "5"))
    ask("a setting twice", "sc", ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    ask("one good, one bad", "sc", ("retention.ms", 0, "77"), ("nonsense", 0, "2"))
    ask("nothing", "sc")
    ask("unknown topic", "nobody", ("retention.ms", 0, "1"))
    ask("an illegal topic", "a/b", ("retention.ms", 0, "1"))
    ask("no topic", "", ("retention.ms", 0, "1"))
    ask("an unknown node", "77", ("log.retention.ms", 0, "1"), kind=BROKER)
    ask("a node that is no number", "x", ("log.retention.ms", 0, "1"), kind=BROKER)
    ask("a kind that is not there", "sc", ("retention.ms", 0, "1"), kind=77)
    ask("kind 0", "sc", ("retention.ms", 0, "1"), kind=0)


def odd_changes(peer: Peer) -> None:
    ask = lambda what, *rest, **options: peer.ask(what, incremental(*rest, **options))  # noqa: E731
    for what, name in (("a long name", "a" * 250), ("a dot", "."), ("no ASCII", "ä")):
        ask(what, name, ("retention.ms", 0, "1"))
    ask("an illegal topic, to delete", "a/b", ("retention.ms", 1, None))
    ask("an illegal topic, nothing", "a/b")
    ask("no topic, nothing", "")
    ask("an unknown topic, nothing", "nobody")
    ask("an unknown topic, a bad setting", "nobody", ("nonsense", 0, "1"))
    ask("an operation of -1", "sc", ("retention.ms", -1, "5"))
    ask("an unknown operation on what is not known", "sc", ("nonsense", 9, "5"))
    ask("set and delete", "sc", ("retention.ms", 0, "1"), ("retention.ms", 1, None))
    ask("delete twice", "sc", ("retention.ms", 1, None), ("retention.ms", 1, None))
    ask("append and remove", "sc", ("cleanup.policy", 2, "compact"), ("cleanup.policy", 3, "x"))
    ask("set null", "sc", ("retention.ms", 0, None))
    ask("remove null", "sc", ("cleanup.policy", 3, None))
    ask("append nothing", "sc", ("cleanup.policy", 2, ""))
    ask("append twice", "sc", ("cleanup.policy", 2, "compact,compact"))
    ask("remove all", "sc", ("cleanup.policy", 3, "delete,compact"))
    ask("set it back", "sc", ("cleanup.policy", 1, None))


def read_over(peer: Peer) -> None:
    """What is kept of values in which there is something to be read over."""
    ask = lambda what, *rest, **options: peer.ask(what, incremental(*rest, **options))  # noqa: E731
    ask("spaces", "sc", ("retention.ms", 0, " 5 "))
    asked = [DescribeConfigsResource(TOPIC, "sc", ["retention.ms", "cleanup.policy"])]
    peer.until("it shows", lambda: _value(peer, "retention.ms").strip() == "5")
    peer.ask("with spaces", DescribeConfigsRequest(asked))
    ask("a policy twice", "sc", ("cleanup.policy", 0, "compact,compact"))
    peer.until("it shows", lambda: "compact" in _value(peer, "cleanup.policy"))
    peer.ask("a policy twice", DescribeConfigsRequest(asked))
    ask("no policy", "sc", ("cleanup.policy", 0, ""))
    peer.until("it shows", lambda: "compact" not in _value(peer, "cleanup.policy"))
    peer.ask("no policy", DescribeConfigsRequest(asked))
    ask("nothing left", "sc", ("cleanup.policy", 1, None), ("retention.ms", 1, None))


def other_resources(peer: Peer) -> None:
    ask = lambda what, *rest, **options: peer.ask(what, incremental(*rest, **options))  # noqa: E731
    node = lambda what, *rest: ask(what, *rest, kind=BROKER)  # noqa: E731
    node("a node, delete", "1", ("log.retention.ms", 1, None))
    node("a node, nothing", "1")
    node("a node, what is not known", "1", ("nonsense", 1, None))
    node("an unknown node, nothing", "77")
    node("a negative node", "-1", ("log.retention.ms", 1, None))
    ask("a group without a name", "", ("consumer.session.timeout.ms", 1, None), kind=32)
    ask("a group, what is not known", "g", ("nonsense", 0, "1"), kind=32)
    ask("a group, a bad value", "g", ("consumer.session.timeout.ms", 0, "x"), kind=32)
    ask("a logger of an unknown node", "77", ("root", 0, "INFO"), kind=8)
    ask("a kind that is not there, nothing", "sc", kind=77)
    ask("kind 0, nothing", "sc", kind=0)
    same = [IncrementalAlterConfigsResource(TOPIC, "sc", [])] * 2
    peer.ask("a topic twice", IncrementalAlterConfigsRequest(same))
    peer.ask("no resources", IncrementalAlterConfigsRequest([]))


def replaced(peer: Peer) -> None:
    def ask(what: str, name: str, *pairs: tuple[str, str | None], kind: int = TOPIC) -> None:
        rows = [AlterConfigsResource(kind, name, [AlterableConfig(*one) for one in pairs])]
        peer.ask(what, AlterConfigsRequest(rows))

    ask("a setting", "sc", ("retention.ms", "55"))
    ask("null", "sc", ("retention.ms", None))
    ask("unknown", "sc", ("nonsense", "1"))
    ask("unknown topic", "nobody", ("retention.ms", "55"))
    ask("twice", "sc", ("retention.ms", "55"), ("retention.ms", "56"))
    ask("an illegal topic", "a/b", ("retention.ms", "55"))
    ask("no topic", "", ("retention.ms", "55"))
    ask("an illegal topic, nothing", "a/b")
    ask("spaces", "sc", ("retention.ms", " 55 "))
    ask("an unknown node", "77", ("log.retention.ms", "55"), kind=BROKER)
    ask("a node that is no number", "x", ("log.retention.ms", "55"), kind=BROKER)
    ask("a kind that is not there", "sc", ("retention.ms", "55"), kind=77)
    ask("kind 0", "sc", ("retention.ms", "55"), kind=0)
    same = [AlterConfigsResource(TOPIC, "sc", [AlterableConfig("retention.ms", "55")])] * 2
    peer.ask("a topic twice", AlterConfigsRequest(same), NEWEST)  # Kafka never answers
    peer.ask("no resources", AlterConfigsRequest([]))
    ask("none, so all are gone", "sc")
    peer.until("it shows", lambda: _is_default(peer))
    asked = [DescribeConfigsResource(TOPIC, "sc", ["retention.ms", "cleanup.policy"])]
    peer.ask("what is left", DescribeConfigsRequest(asked))


def _is_default(peer: Peer) -> bool:
    return _value(peer, "retention.ms").strip() != "55"


def _value(peer: Peer, name: str) -> str:
    asked = [DescribeConfigsResource(TOPIC, "sc", [name])]
    (found,) = peer.quiet(DescribeConfigsRequest(asked)).results[0].configs
    return str(found.value)


def describing(peer: Peer) -> None:
    peer.topic("dc", retention_ms="123")

    def ask(what: str, kind: int, name: str, keys: list[str] | None = None, **options: Any) -> None:
        rows = [DescribeConfigsResource(kind, name, keys)]
        peer.ask(what, DescribeConfigsRequest(rows, **options))

    ask("of a topic", TOPIC, "dc")
    ask("of a topic, with synonyms", TOPIC, "dc", ["retention.ms"], include_synonyms=True)
    ask("of a topic, documented", TOPIC, "dc", ["retention.ms"], include_documentation=True)
    ask("of one setting", TOPIC, "dc", ["retention.ms"])
    ask("of a setting that is not there", TOPIC, "dc", ["nonsense"])
    ask("of no settings", TOPIC, "dc", [])
    ask("of a setting twice", TOPIC, "dc", ["retention.ms", "retention.ms"])
    ask("of a setting without a name", TOPIC, "dc", [""])
    ask("of no settings of an unknown topic", TOPIC, "nobody", [])
    ask("of no settings of a node", BROKER, "1", [])
    ask("of no settings of a group", 32, "none", [])
    ask("of a negative node", BROKER, "-1")
    ask("of a group without a name", 32, "")
    ask("of a logger of an unknown node", 8, "77", ["root"])
    ask("of client metrics without a name", 16, "")
    ask("of an unknown topic", TOPIC, "nobody")
    ask("of an illegal topic", TOPIC, "a/b")
    ask("of no topic", TOPIC, "")
    listeners = ["listeners", "advertised.listeners", "log.dirs", "broker.rack", "node.id"]
    ask("of a node, what tools look for", BROKER, "1", listeners)
    wanted = ["auto.create.topics.enable", "default.replication.factor", "num.partitions"]
    ask("of a node, defaults", BROKER, "1", [*wanted, "min.insync.replicas", "log.retention.ms"])
    ask("of an unknown node", BROKER, "77")
    ask("of a node that is no number", BROKER, "x")
    ask("of the cluster-wide defaults", BROKER, "")
    ask("of a logger", 8, "1", ["root"])
    ask("of client metrics", 16, "none")
    ask("of a group", 32, "none")
    ask("of a kind that is not there", 77, "x")
    ask("of kind 0", 0, "x")
    same = [DescribeConfigsResource(TOPIC, "dc", ["retention.ms"])] * 2
    peer.ask("of a topic twice", DescribeConfigsRequest(same))
    peer.ask("of nothing", DescribeConfigsRequest([]))


def partitions(peer: Peer) -> None:
    peer.topic("cp", partitions=2)

    def ask(what: str, *topics: CreatePartitionsTopic, only: bool = False) -> None:
        peer.ask(what, CreatePartitionsRequest(list(topics), 5_000, only), NEWEST)

    row = CreatePartitionsTopic
    ask("one more", row("cp", 3))
    ask("as many as there are", row("cp", 3))
    ask("fewer", row("cp", 1))
    ask("none", row("cp", 0))
    ask("a negative number", row("cp", -1))
    ask("of an unknown topic", row("nobody", 3))
    ask("of an illegal topic", row("a/b", 3))
    ask("twice", row("cp", 5), row("cp", 6))
    ask("twice, and another", row("cp", 5), row("cp", 6), row("nobody", 3))
    ask("an unknown topic twice", row("nobody", 5), row("nobody", 6))
    ask("of a topic without a name", row("", 3))
    ask("only to see", row("cp", 9), only=True)
    ask("of no topic")
    hand = lambda *nodes: [CreatePartitionsAssignment(list(one)) for one in nodes]  # noqa: E731
    ask("by hand", row("cp", 4, hand([1])), only=True)
    ask("by hand, an unknown node", row("cp", 4, hand([77])), only=True)
    ask("by hand, too few", row("cp", 6, hand([1])), only=True)
    ask("by hand, none", row("cp", 4, []), only=True)
    ask("by hand, a node twice", row("cp", 4, hand([1, 1])), only=True)


def deleting(peer: Peer) -> None:
    ids = {name: peer.topic(name) for name in ("dt1", "dt2", "dt3")}

    def ask(what: str, *topics: DeleteTopicState) -> None:
        names = [one.name for one in topics if one.name is not None]
        peer.ask(what, DeleteTopicsRequest(names, list(topics), 5_000), NEWEST)

    row = DeleteTopicState
    ask("an unknown topic", row("nobody"))
    ask("an illegal name", row("a/b"))
    ask("an id that is not there", row(None, NOWHERE))
    ask("neither name nor id", row(None))
    ask("both", row("dt1", ids["dt1"]))
    ask("by name", row("dt1"))
    ask("by id", row(None, ids["dt2"]))
    ask("twice", row("dt3"), row("dt3"))
    ask("by id twice", row(None, ids["dt3"]), row(None, ids["dt3"]))
    ask("by name and by id", row("dt3"), row(None, ids["dt3"]))
    ask("an unknown topic twice", row("nobody"), row("nobody"))
    ask("an unknown id twice", row(None, NOWHERE), row(None, NOWHERE))
    ask("no name", row(""))
    ask("twice, and another", row("dt3"), row("dt3"), row("nobody"))
    ask("nothing")


def directories(peer: Peer) -> None:
    peer.topic("ld")
    peer.write(produce("ld", batch("a")))
    ask = lambda what, *topics: peer.ask(what, DescribeLogDirsRequest(list(topics)))  # noqa: E731
    ask("of a topic", DescribableLogDirTopic("ld", [0]))
    ask("of an unknown topic", DescribableLogDirTopic("nobody", [0]))
    ask("of an unknown partition", DescribableLogDirTopic("ld", [9]))
    ask("of none")
    ask("of a topic without a name", DescribableLogDirTopic("", [0]))
    ask("of a topic twice", *[DescribableLogDirTopic("ld", [0])] * 2)
    ask("of a partition twice", DescribableLogDirTopic("ld", [0, 0]))
    ask("of no partitions", DescribableLogDirTopic("ld", []))


def elections(peer: Peer) -> None:
    peer.topic("el", partitions=2)

    def ask(what: str, kind: int, topic: str, *parts: int) -> None:
        rows = [ElectTopicPartitions(topic, list(parts))]
        peer.ask(what, ElectLeadersRequest(kind, rows, 5_000), least=1 if kind else 0)

    ask("preferred", 0, "el", 0, 1)
    ask("preferred, unknown topic", 0, "nobody", 0)
    ask("preferred, unknown partition", 0, "el", 9)
    ask("preferred, twice", 0, "el", 0, 0)
    ask("unclean", 1, "el", 0)
    ask("a kind that is not there", 9, "el", 0)
    ask("preferred, no partitions", 0, "el")
    ask("preferred, a negative partition", 0, "el", -1)
    ask("preferred, an illegal topic", 0, "a/b", 0)
    ask("unclean, unknown topic", 1, "nobody", 0)
    named = [ElectTopicPartitions("el", [0]), ElectTopicPartitions("el", [1])]
    peer.ask("preferred, a topic twice", ElectLeadersRequest(0, named, 5_000))
    peer.ask("all", ElectLeadersRequest(0, None, 5_000))
    peer.ask("none", ElectLeadersRequest(0, [], 5_000))


def reassignments(peer: Peer) -> None:
    peer.topic("re", partitions=2)

    def ask(what: str, replicas: list[int] | None, topic: str = "re", part: int = 0) -> None:
        rows = [ReassignableTopic(topic, [ReassignablePartition(part, replicas)])]
        peer.ask(what, AlterPartitionReassignmentsRequest(5_000, True, rows))

    ask("to where it is", [1])
    ask("to an unknown node", [77])
    ask("to a negative node", [-1])
    ask("to a node twice", [1, 1])
    ask("to no node", [])
    ask("a cancel of nothing", None)
    ask("unknown topic", [1], topic="nobody")
    ask("unknown topic, a cancel", None, topic="nobody")
    ask("unknown partition", [1], part=9)
    ask("a negative partition", [1], part=-1)
    ask("an illegal topic", [1], topic="a/b")
    ask("unknown partition, a cancel", None, part=9)
    both = [ReassignableTopic("re", [ReassignablePartition(0, [1])])] * 2
    peer.ask("a topic twice", AlterPartitionReassignmentsRequest(5_000, True, both))
    same = [ReassignableTopic("re", [ReassignablePartition(0, [1])] * 2)]
    peer.ask("a partition twice", AlterPartitionReassignmentsRequest(5_000, True, same))
    peer.ask("nothing", AlterPartitionReassignmentsRequest(5_000, True, []))
    peer.ask("all", ListPartitionReassignmentsRequest(5_000, None))
    listed = lambda what, topic, *parts: peer.ask(  # noqa: E731
        what,
        ListPartitionReassignmentsRequest(
            5_000, [ListPartitionReassignmentsTopic(topic, list(parts))]
        ),
    )
    listed("of a topic", "re", 0)
    listed("of an unknown topic", "nobody", 0)
    listed("of an unknown partition", "re", 9)


def clusters(peer: Peer) -> None:
    peer.ask("it", DescribeClusterRequest())
    peer.ask("with what is allowed", DescribeClusterRequest(True))
    for kind in (2, 9):
        peer.ask(f"endpoints of type {kind}", DescribeClusterRequest(False, kind), least=1)
    peer.ask("with fenced nodes", DescribeClusterRequest(include_fenced_brokers=True), least=2)


STORIES: Final[Sequence[Any]] = (
    versions,
    metadata,
    creating,
    settings_at_birth,
    settings_changed,
    describing,
    partitions,
    deleting,
    directories,
    elections,
    reassignments,
    clusters,
)
