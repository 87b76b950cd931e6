"""The bytes of an AssignedSnapshot, in commands and in checkpoints."""

from collections.abc import Mapping
from typing import Final

from coordinator.assigned_group import AssignedMember, AssignedSnapshot, Subscription
from coordinator.assignor import ASSIGNORS, Share
from coordinator.codec import I32, I64, U32, CommandError, Reader, Writer
from coordinator.limits import MEMBERS_MAX, PARTITIONS_MAX, TOPICS_MAX
from coordinator.model import ConsumerGroupId, MemberId

TOPIC_ID_BYTES: Final = 16


def write_assigned(writer: Writer, snapshot: AssignedSnapshot) -> None:
    flaw = snapshot.flaw()
    assert flaw is None, f"{snapshot.group}: {flaw}"
    writer.text(snapshot.group)
    writer.pack(I64, snapshot.prev_revision)
    writer.pack(I32, snapshot.epoch)
    writer.text(snapshot.assignor)
    writer.pack(U32, len(snapshot.members))
    for member in snapshot.members:
        _write_member(writer, member)
    writer.pack(U32, len(snapshot.topics))
    for topic_id, count in sorted(snapshot.topics.items()):
        writer.blob(topic_id)
        writer.pack(I32, count)


def read_assigned(reader: Reader) -> AssignedSnapshot:
    group = ConsumerGroupId(reader.text())
    prev_revision, epoch, assignor = reader.number(I64), reader.number(I32), reader.text()
    if assignor not in ASSIGNORS:
        raise CommandError(f"assignor {assignor[:40]!r}")
    members = tuple([_read_member(reader) for _ in range(reader.count(MEMBERS_MAX, 40))])
    topics = _read_topics(reader)
    snapshot = AssignedSnapshot(group, prev_revision, epoch, assignor, members, topics)
    flaw = snapshot.flaw()
    if flaw is not None:
        raise CommandError(flaw)
    return snapshot


def _read_topics(reader: Reader) -> Mapping[bytes, int]:
    topics: dict[bytes, int] = {}
    for _ in range(reader.count(TOPICS_MAX, 4 + TOPIC_ID_BYTES + 4)):
        topic_id, count = _topic_id(reader), reader.number(I32)
        if topic_id in topics or count < 0:
            raise CommandError("a topic is there twice, or has a negative number of partitions")
        topics[topic_id] = count
    return topics


def _write_member(writer: Writer, member: AssignedMember) -> None:
    subscription = member.subscription
    writer.text(member.member_id)
    writer.text(member.instance_id)
    writer.text(member.client_id)
    writer.text(member.client_host)
    writer.pack(U32, len(subscription.topics))
    for topic in subscription.topics:
        writer.text(topic)
    writer.text(subscription.pattern)
    writer.text(subscription.assignor)
    writer.text(subscription.rack_id)
    writer.pack(I32, subscription.rebalance_timeout_ms)
    writer.pack(I32, member.epoch)
    writer.pack(I32, member.previous_epoch)
    for share in (member.assigned, member.revoking, member.target):
        writer.pack(U32, len(share))
        for topic_id, partition in sorted(share):
            writer.blob(topic_id)
            writer.pack(I32, partition)


def _read_member(reader: Reader) -> AssignedMember:
    member_id, instance_id = MemberId(reader.text()), reader.optional_text()
    client_id, client_host = reader.text(), reader.text()
    topics = tuple([reader.text() for _ in range(reader.count(TOPICS_MAX, 2))])
    pattern, assignor, rack_id = (reader.optional_text() for _ in range(3))
    subscription = Subscription(topics, pattern, assignor, rack_id, reader.number(I32))
    epoch, previous_epoch = reader.number(I32), reader.number(I32)
    return AssignedMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        subscription=subscription,
        epoch=epoch,
        previous_epoch=previous_epoch,
        assigned=_read_share(reader),
        revoking=_read_share(reader),
        target=_read_share(reader),
    )


def _read_share(reader: Reader) -> Share:
    count = reader.count(PARTITIONS_MAX, 4 + TOPIC_ID_BYTES + 4)
    parts = [(_topic_id(reader), reader.number(I32)) for _ in range(count)]
    share = frozenset(parts)
    if len(share) != count:
        raise CommandError("a partition is there twice")
    return share


def _topic_id(reader: Reader) -> bytes:
    topic_id = reader.blob()
    if len(topic_id) != TOPIC_ID_BYTES:
        raise CommandError(f"a topic id of {len(topic_id)} bytes")
    return topic_id
