"""Stories about consumer groups: of both protocols, and their offsets."""

from collections.abc import Sequence
from typing import Any, Final

from tests.broker.batches import batch
from tests.compat.side_by_side.peer import Peer, Which
from tests.compat.side_by_side.records import produce
from wire.messages.assigned_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    TopicIdPartitions,
)
from wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from wire.messages.membership import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

NEWEST: Final = Which.NEWEST
STRANGER: Final = "nobody-00000000-0000-0000-0000-000000000000"
METADATA_MAX: Final = 4096


def coordinators(peer: Peer) -> None:
    ask = lambda what, key, **options: peer.ask(  # noqa: E731
        what, FindCoordinatorRequest(key=key, coordinator_keys=[key], **options)
    )
    ask("of a group", "g")
    ask("of a group without a name", "")
    ask("of a transaction", "tx", key_type=1)
    ask("of a share group", "g", key_type=2)
    ask("of a type that is not there", "g", key_type=9)
    ask("of a negative type", "g", key_type=-1)
    many = FindCoordinatorRequest(coordinator_keys=["a", "b", "a"])
    peer.ask("of several", many, least=4)
    peer.ask("of none", FindCoordinatorRequest(), least=4)


def commit(
    group: str, topic: str, *rows: tuple[int, int], generation: int = -1, member: str = "",
    note: str | None = None, instance: str | None = None,
) -> OffsetCommitRequest:  # fmt: skip
    parts = [OffsetCommitRequestPartition(p, offset, -1, note) for p, offset in rows]
    topics = [OffsetCommitRequestTopic(topic, parts)]
    return OffsetCommitRequest(group, generation, member, group_instance_id=instance, topics=topics)


def committing(peer: Peer) -> None:
    peer.topic("oc", partitions=3)
    ask = lambda what, *rest, **options: peer.ask(what, commit(*rest, **options))  # noqa: E731
    ask("without a group", "simple", "oc", (0, 5))
    ask("two partitions", "simple", "oc", (0, 5), (1, 6))
    ask("a partition twice", "simple", "oc", (0, 5), (0, 7))
    ask("a negative offset", "simple", "oc", (0, -1))
    ask("far beyond the end", "simple", "oc", (0, 10**12))
    ask("unknown topic", "simple", "nobody", (0, 5))
    ask("an illegal topic", "simple", "a/b", (0, 5))
    ask("unknown partition", "simple", "oc", (9, 5))
    ask("a negative partition", "simple", "oc", (-1, 5))
    ask("a note", "simple", "oc", (2, 5), note="note")
    ask("a long note", "simple", "oc", (2, 5), note="n" * METADATA_MAX)
    ask("too long a note", "simple", "oc", (2, 6), note="n" * (METADATA_MAX + 1))
    ask("a group without a name", "", "oc", (0, 5))
    ask("a member of an empty group", "simple", "oc", (0, 5), generation=3, member=STRANGER)
    ask("a generation without a member", "simple", "oc", (0, 5), generation=3)
    ask("a member without a generation", "simple", "oc", (0, 5), member=STRANGER)
    ask(
        "a member of a group that is not there", "none", "oc", (0, 5), generation=3, member=STRANGER
    )
    ask("an instance without a member", "simple", "oc", (0, 5), instance="one")
    ask("a generation of -2", "simple", "oc", (0, 5), generation=-2)
    ask("a member of generation -2", "simple", "oc", (0, 5), generation=-2, member=STRANGER)
    ask("nobody's generation, into a group that is not there", "none", "oc", (0, 5), generation=3)
    ask("no generation, into a group that is not there", "new", "oc", (0, 5), member=STRANGER)
    ask("a member of a group without a name", "", "oc", (0, 5), generation=3, member=STRANGER)
    ask("a wrong generation, an unknown topic", "simple", "nobody", (0, 5), generation=3)
    ask("unknown and known partitions", "simple", "oc", (0, 5), (9, 5))
    ask("no partitions", "simple", "oc")
    peer.ask("no topics", OffsetCommitRequest("simple"))


def offsets(group: str, topic: str | None, *partitions: int) -> OffsetFetchRequest:
    topics = None if topic is None else [OffsetFetchRequestTopic(topic, list(partitions))]
    return OffsetFetchRequest(group, [OffsetFetchRequestGroup(group, topics=topics)], topics)


def fetching(peer: Peer) -> None:
    peer.topic("of", partitions=3)
    peer.quiet(commit("reader", "of", (0, 5), note="note"))
    peer.quiet(commit("reader", "of", (1, 6)))
    ask = lambda what, *rest: peer.ask(what, offsets(*rest))  # noqa: E731
    ask("what is there", "reader", "of", 0, 1)
    ask("what was not committed", "reader", "of", 2)
    ask("unknown partition", "reader", "of", 9)
    ask("a partition twice", "reader", "of", 0, 0)
    ask("unknown topic", "reader", "nobody", 0)
    ask("unknown group", "none", "of", 0)
    ask("a group without a name", "", "of", 0)
    ask("no partitions", "reader", "of")
    ask("a negative partition", "reader", "of", -1)
    ask("an illegal topic", "reader", "a/b", 0)
    named = [OffsetFetchRequestTopic("of", [0])] * 2
    twice = OffsetFetchRequest("reader", [OffsetFetchRequestGroup("reader", topics=named)], named)
    peer.ask("a topic twice", twice)
    peer.ask("all of a group without a name", offsets("", None), least=2)
    peer.ask("all", offsets("reader", None), least=2)
    peer.ask("all of an unknown group", offsets("none", None), least=2)
    peer.ask("no groups", OffsetFetchRequest(), least=8)
    twice = [OffsetFetchRequestGroup("reader", topics=None)] * 2
    peer.ask("a group twice", OffsetFetchRequest(groups=twice), least=8)
    as_member = OffsetFetchRequestGroup("reader", STRANGER, 4, None)
    peer.ask("as a member of an epoch", OffsetFetchRequest(groups=[as_member]), least=9)
    stable = OffsetFetchRequest("reader", offsets("reader", None).groups, None, True)
    peer.ask("stable ones", stable, least=7)


def join(
    group: str, member: str = "", *, protocols: Sequence[str] = ("range",), kind: str = "consumer",
    session_ms: int = 10_000, instance: str | None = None, topic: str = "j",
) -> JoinGroupRequest:  # fmt: skip
    metadata = encode_subscription(ConsumerProtocolSubscription([topic]))
    named = [JoinGroupRequestProtocol(name, metadata) for name in protocols]
    return JoinGroupRequest(group, session_ms, 10_000, member, instance, kind, named)


def joined(peer: Peer, group: str, **options: Any) -> tuple[str, int]:
    """The only member of a group, with its share; (member id, generation)."""
    peer.coordinates(group)
    told = peer.quiet(join(group, **options))
    if told.generation_id <= 0:
        told = peer.quiet(join(group, told.member_id, **options))
    share = [
        SyncGroupRequestAssignment(told.member_id, b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")
    ]
    instance = options.get("instance")
    asked = SyncGroupRequest(
        group, told.generation_id, told.member_id, instance, "consumer", "range", share
    )
    assert peer.quiet(asked).error_code == 0
    return told.member_id, told.generation_id


def joining(peer: Peer) -> None:
    peer.topic("j")
    peer.coordinates("j0")
    ask = lambda what, request: peer.ask(what, request, NEWEST)  # noqa: E731
    ask("a group without a name", join(""))
    ask("a session of 1 ms", join("j0", session_ms=1))
    ask("a session of a day", join("j0", session_ms=86_400_000))
    ask("no protocols", join("j0", protocols=()))
    ask("no kind of protocol", join("j0", kind=""))
    ask("a negative session", join("j0", session_ms=-1))
    ask("a protocol twice", join("j3", protocols=("range", "range")))
    ask("a protocol without a name", join("j4", protocols=("",)))
    ask("a group without a name, a session of 1 ms", join("", session_ms=1))
    ask("no protocols, a session of 1 ms", join("j0", protocols=(), session_ms=1))
    ask("an unknown member of a group that is not there", join("j5", STRANGER))
    ask("an unknown member", join("j0", STRANGER))
    ask("an unknown member with an instance", join("j0", STRANGER, instance="one"))
    told = ask("without an id", join("j1"))
    ask("with the id that it was told", join("j1", told.member_id))
    peer.ask("without an id, by version", lambda version: join(f"jv{version}"))
    member, generation = joined(peer, "j2")
    ask("another kind", join("j2", kind="connect"))
    ask("no common protocol", join("j2", protocols=("sticky",)))
    ask("the leader again", join("j2", member))
    beat = HeartbeatRequest("j2", generation, member)
    ask("a heartbeat while the group rebalances", beat)


def members(peer: Peer) -> None:
    peer.topic("m", partitions=2)
    member, generation = joined(peer, "m", topic="m")
    beat = lambda what, *rest: peer.ask(what, HeartbeatRequest(*rest))  # noqa: E731
    beat("of a member", "m", generation, member)
    beat("of another generation", "m", generation + 5, member)
    beat("of an old generation", "m", generation - 1, member)
    beat("of generation -1", "m", -1, member)
    beat("of an unknown member", "m", generation, STRANGER)
    beat("of nobody", "m", generation, "")
    beat("in an unknown group", "none", generation, member)
    beat("in a group without a name", "", generation, member)
    beat("of an instance that is not there", "m", generation, member, "one")
    beat("of nobody in an unknown group", "none", generation, "")
    beat("of a negative generation in an unknown group", "none", -1, STRANGER)
    beat("of an unknown member and another generation", "m", generation + 5, STRANGER)
    sync = lambda what, *rest: peer.ask(what, SyncGroupRequest(*rest), least=5)  # noqa: E731
    sync("of a member", "m", generation, member, None, "consumer", "range")
    sync("of another generation", "m", generation + 5, member, None, "consumer", "range")
    sync("of another protocol", "m", generation, member, None, "consumer", "sticky")
    sync("of another kind", "m", generation, member, None, "connect", "range")
    sync("of an unknown member", "m", generation, STRANGER, None, "consumer", "range")
    sync("in an unknown group", "none", generation, member, None, "consumer", "range")
    sync("in a group without a name", "", generation, member, None, "consumer", "range")
    ask = lambda what, *rest, **options: peer.ask(what, commit(*rest, **options))  # noqa: E731
    ask("of a member", "m", "m", (0, 5), generation=generation, member=member)
    ask("of another generation", "m", "m", (0, 5), generation=generation + 5, member=member)
    ask("of an unknown member", "m", "m", (0, 5), generation=generation, member=STRANGER)
    ask("of no member, into a group at work", "m", "m", (0, 5))
    ask("of a member, without a generation", "m", "m", (0, 5), member=member)
    ask("of nobody, with its generation", "m", "m", (0, 5), generation=generation)
    ask("of an unknown member, without a generation", "m", "m", (0, 5), member=STRANGER)
    ask("of another generation, unknown topic", "m", "nobody", (0, 5), generation=9, member=member)
    peer.ask("of a group at work", DescribeGroupsRequest(["m"]))
    peer.ask("of a group at work", DeleteGroupsRequest(["m"]))
    rows = [OffsetDeleteTopic("m", [OffsetDeletePartition(0)])]
    peer.ask("of a topic that is read", OffsetDeleteRequest("m", rows))
    rows = [OffsetDeleteTopic("m", [OffsetDeletePartition(9)])]
    peer.ask("of an unknown partition of a topic that is read", OffsetDeleteRequest("m", rows))
    rows = [OffsetDeleteTopic("nobody", [OffsetDeletePartition(0)])]
    peer.ask("of an unknown topic, of a group at work", OffsetDeleteRequest("m", rows))
    leaving(peer, member)


def leaving(peer: Peer, member: str) -> None:
    leave = lambda what, *who, group="m": peer.ask(  # noqa: E731
        what, LeaveGroupRequest(group, who[0].member_id if who else "", list(who)), NEWEST
    )
    leave("an unknown member", MemberIdentity(STRANGER))
    leave("an unknown instance", MemberIdentity("", "one"))
    leave("an unknown group", MemberIdentity(member), group="none")
    leave("a group without a name", MemberIdentity(member), group="")
    leave("nobody")
    leave("a member, and one that is not there", MemberIdentity(member), MemberIdentity(STRANGER))
    leave("a member that has left", MemberIdentity(member))
    peer.ask("that all have left", DescribeGroupsRequest(["m"]))


def static_members(peer: Peer) -> None:
    peer.topic("sm")
    member, generation = joined(peer, "st", instance="one", topic="sm")
    beat = lambda what, *rest: peer.ask(what, HeartbeatRequest(*rest), NEWEST)  # noqa: E731
    beat("of a static member", "st", generation, member, "one")
    beat("of its instance under another id", "st", generation, STRANGER, "one")
    beat("of an unknown instance", "st", generation, member, "two")
    fenced = commit("st", "sm", (0, 1), generation=generation, member=STRANGER, instance="one")
    peer.ask("of its instance under another id", fenced, NEWEST)
    told = peer.ask("the same instance again", join("st", instance="one", topic="sm"), NEWEST)
    beat("under its former id", "st", generation, member, "one")
    leave = LeaveGroupRequest("st", "", [MemberIdentity("", "one"), MemberIdentity("", "two")])
    peer.ask("by instance", leave, NEWEST)
    beat("after that", "st", told.generation_id, told.member_id, "one")


def administration(peer: Peer) -> None:
    peer.topic("ga")
    peer.coordinates("idle")
    peer.quiet(commit("idle", "ga", (0, 5)))
    describe = lambda what, *names: peer.ask(what, DescribeGroupsRequest(list(names)))  # noqa: E731
    describe("an unknown group", "none")
    describe("a group without a name", "")
    describe("one that only has offsets", "idle")
    describe("twice", "idle", "idle")
    describe("none")
    wanted = DescribeGroupsRequest(["idle"], True)
    peer.ask("with what is allowed", wanted, least=3)
    peer.ask("all groups of a state that is not there", ListGroupsRequest(["Nonsense"]), least=4)
    peer.ask("all groups of a type that is not there", ListGroupsRequest([], ["nonsense"]), least=5)
    peer.ask("share groups", ListGroupsRequest([], ["share"]), least=5)
    peer.ask("streams groups", ListGroupsRequest([], ["streams"]), least=5)
    erase = lambda what, topic, *parts, group="idle": peer.ask(  # noqa: E731
        what,
        OffsetDeleteRequest(
            group, [OffsetDeleteTopic(topic, [OffsetDeletePartition(one) for one in parts])]
        ),
    )
    erase("of an unknown group", "ga", 0, group="none")
    erase("of a group without a name", "ga", 0, group="")
    erase("of an unknown topic", "nobody", 0)
    erase("of an unknown partition", "ga", 9)
    erase("of a negative partition", "ga", -1)
    erase("of an illegal topic", "a/b", 0)
    erase("of an unknown topic, of an unknown group", "nobody", 0, group="none")
    erase("of no partitions", "ga")
    erase("of no partitions of an unknown topic", "nobody")
    erase("a partition twice", "ga", 0, 0)
    erase("known and unknown", "ga", 0, 9)
    erase("what is there", "ga", 0)
    erase("what is gone", "ga", 0)
    delete = lambda what, *names: peer.ask(what, DeleteGroupsRequest(list(names)), NEWEST)  # noqa: E731
    delete("an unknown group", "none")
    delete("a group without a name", "")
    peer.quiet(commit("idle2", "ga", (0, 5)))
    delete("twice", "idle2", "idle2")
    delete("none")


def beat(
    group: str, member: str, epoch: int, *, topics: Sequence[str] | None = ("k",), **options: Any
) -> ConsumerGroupHeartbeatRequest:
    fields = {"rebalance_timeout_ms": 10_000, **options}
    if topics is not None:
        fields["subscribed_topic_names"] = list(topics)
    if epoch == 0:
        fields.setdefault("topic_partitions", [])
    return ConsumerGroupHeartbeatRequest(group, member, epoch, **fields)


def broker_side(peer: Peer) -> None:
    """KIP-848."""
    topic_id = peer.topic("k", partitions=2)
    peer.write(produce("k", batch("a")))
    peer.coordinates("k")
    ask = lambda what, *rest, **options: peer.ask(what, beat(*rest, **options), NEWEST)  # noqa: E731
    one = "AAAAAAAAAAAAAAAAAAAAAA"
    epoch = ask("joins", "k", one, 0).member_epoch
    ask("a group without a name", "", one, 0)
    ask("a member without a name", "k2", "", 0)
    ask("no subscription", "k2", one, 0, topics=None)
    ask("an empty subscription", "k2", one, 0, topics=())
    ask("a topic that is not there", "k3", one, 0, topics=("nobody",))
    ask("no rebalance timeout", "k2", one, 0, rebalance_timeout_ms=-1)
    ask("an unknown assignor", "k2", one, 0, server_assignor="nonsense")
    ask("assignor range", "k4", one, 0, server_assignor="range")
    ask(
        "with partitions at once", "k2", one, 0, topic_partitions=[TopicIdPartitions(topic_id, [0])]
    )
    ask("an empty instance", "k2", one, 0, instance_id="")
    ask("an empty rack", "k2", one, 0, rack_id="")
    ask("an empty assignor", "k2", one, 0, server_assignor="")
    ask("an empty pattern", "k7", one, 0, topics=None, subscribed_topic_regex="")
    ask("a topic without a name", "k8", one, 0, topics=("",))
    ask("a topic twice", "k9", one, 0, topics=("k", "k"))
    ask("an illegal topic", "k10", one, 0, topics=("a/b",))
    ask("an id that is no uuid", "k11", "x y", 0)
    ask("no list of partitions", "k12", one, 0, topic_partitions=None)
    ask("a rebalance timeout of 0", "k13", one, 0, rebalance_timeout_ms=0)
    ask("an empty rack later on", "k", one, epoch, topics=None, rack_id="")
    ask("an unknown assignor later on", "k", one, epoch, topics=None, server_assignor="nonsense")
    ask("no topics and no pattern", "k2", one, 0, topics=(), subscribed_topic_regex="")
    ask("an instance leaves that is not there", "k", one, -2, topics=None, instance_id="i")
    ask("a pattern", "k5", one, 0, topics=None, subscribed_topic_regex="k.*")
    ask("a pattern that is none", "k6", one, 0, topics=None, subscribed_topic_regex="k(")
    ask("goes on", "k", one, epoch, topics=None)
    ask("an epoch of the future", "k", one, 50, topics=None)
    ask("an unknown member", "k", "BBBBBBBBBBBBBBBBBBBBBB", 1, topics=None)
    ask("an unknown group", "none", one, 1, topics=None)
    ask("epoch -3", "k", one, -3, topics=None)
    ask("leaves a group that is not there", "none", one, -1, topics=None)
    ask("an unknown member leaves", "k", "BBBBBBBBBBBBBBBBBBBBBB", -1, topics=None)
    ask("a static leave without an instance", "k", one, -2, topics=None)
    assigned_group(peer, one, epoch)


def assigned_group(peer: Peer, one: str, epoch: int) -> None:
    at = lambda what, *rest, **options: peer.ask(what, commit(*rest, **options), NEWEST)  # noqa: E731
    at("under its epoch", "k", "k", (0, 1), generation=epoch, member=one)
    at("under another epoch", "k", "k", (0, 1), generation=epoch + 7, member=one)
    at("of no member, into an assigned group", "k", "k", (0, 1))
    at(
        "of an unknown member, into an assigned group",
        "k",
        "k",
        (0, 1),
        generation=epoch,
        member="x",
    )
    at("under epoch -1", "k", "k", (0, 1), member=one)
    group = OffsetFetchRequestGroup("k", one, epoch, None)
    peer.ask("under its epoch", OffsetFetchRequest(groups=[group]), least=9)
    group = OffsetFetchRequestGroup("k", one, epoch + 7, None)
    peer.ask("under another epoch", OffsetFetchRequest(groups=[group]), least=9)
    peer.ask("of an assigned group", ConsumerGroupDescribeRequest(["k"]))
    peer.ask("of an unknown group", ConsumerGroupDescribeRequest(["none"]))
    peer.ask("of a group without a name", ConsumerGroupDescribeRequest([""]))
    peer.ask("of none", ConsumerGroupDescribeRequest([]))
    peer.ask("twice", ConsumerGroupDescribeRequest(["k", "k"]))
    peer.ask("with what is allowed", ConsumerGroupDescribeRequest(["k"], True))
    peer.ask("of an assigned group", DescribeGroupsRequest(["k"]))
    peer.ask("of an assigned group", DeleteGroupsRequest(["k"]), NEWEST)
    peer.ask("into an assigned group", join("k", topic="k"), NEWEST)
    peer.ask("in an assigned group", HeartbeatRequest("k", epoch, one), NEWEST)
    joined(peer, "kc", topic="k")
    peer.ask("into a classic group", beat("kc", one, 0), NEWEST)
    peer.ask("of a classic group", ConsumerGroupDescribeRequest(["kc"]))
    peer.ask("the last leaves", beat("k", one, -1, topics=None), NEWEST)
    peer.ask("that it has left", ConsumerGroupDescribeRequest(["k"]))


STORIES: Final[Sequence[Any]] = (
    coordinators,
    committing,
    fetching,
    joining,
    members,
    static_members,
    administration,
    broker_side,
)
