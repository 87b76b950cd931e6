"""The bytes of an AssignedSnapshot, in commands and in checkpoints."""

from collections.abc import Mapping
from typing import Final

import attrs

from coordinator.limits import MEMBERS_MAX, PARTITIONS_MAX, PROTOCOLS_MAX, TOPICS_MAX
from coordinator.model import ConsumerGroupId, MemberId, Protocol
from coordinator.replicated.assigned_group import (
    AssignedMember,
    AssignedSnapshot,
    ClassicMember,
    Subscription,
)
from coordinator.replicated.assignor import ASSIGNORS, Part, Share
from coordinator.replicated.codec import I32, I64, U8, U32, CommandError, Reader, Writer

TOPIC_ID_BYTES: Final = 16
NOT_KNOWN: Final = -1


def has_since(snapshot: AssignedSnapshot) -> bool:
    """Whether it says since when anything is held; snapshots from before KIP-1251 do not."""
    return any(member.since for member in snapshot.members)


def is_plain(snapshot: AssignedSnapshot) -> bool:
    """Whether it is one that releases without mixed groups knew."""
    return not snapshot.mixed and not snapshot.converts


def write_assigned(writer: Writer, snapshot: AssignedSnapshot) -> None:
    """The epochs since which parts are held are written only if any is known (`has_since`)."""
    _write_assigned(writer, snapshot, with_since=has_since(snapshot))


def write_mixed(writer: Writer, snapshot: AssignedSnapshot) -> None:
    """A snapshot that is not plain: what the plain one has, with epochs, and the rest behind it."""
    _write_assigned(writer, snapshot, with_since=True)
    writer.pack(U8, snapshot.converts)
    for member in snapshot.members:
        classic = member.classic
        writer.pack(U8, classic is not None)
        if classic is not None:
            writer.pack(I32, classic.session_timeout_ms)
            writer.pack(U32, len(classic.protocols))
            for name, metadata in classic.protocols:
                writer.text(name)
                writer.blob(metadata)


def _write_assigned(writer: Writer, snapshot: AssignedSnapshot, *, with_since: bool) -> None:
    flaw = snapshot.flaw()
    assert flaw is None, f"{snapshot.group}: {flaw}"
    writer.text(snapshot.group)
    writer.pack(I64, snapshot.prev_revision)
    writer.pack(I32, snapshot.epoch)
    writer.text(snapshot.assignor)
    writer.pack(U32, len(snapshot.members))
    for member in snapshot.members:
        _write_member(writer, member)
        if with_since:
            _write_since(writer, member)
    writer.pack(U32, len(snapshot.topics))
    for topic_id, count in sorted(snapshot.topics.items()):
        writer.blob(topic_id)
        writer.pack(I32, count)


def read_assigned(reader: Reader) -> AssignedSnapshot:
    return _read_assigned(reader, with_since=False)


def read_assigned_since(reader: Reader) -> AssignedSnapshot:
    snapshot = _read_assigned(reader, with_since=True)
    if not has_since(snapshot):
        raise CommandError("epochs announced where there are none")
    return snapshot


def read_mixed(reader: Reader) -> AssignedSnapshot:
    plain = _read_assigned(reader, with_since=True)
    converts = _flag(reader)
    members = tuple([attrs.evolve(one, classic=_read_classic(reader)) for one in plain.members])
    snapshot = attrs.evolve(plain, members=members, converts=converts)
    if is_plain(snapshot):
        raise CommandError("classic members announced where there are none")
    flaw = snapshot.flaw()
    if flaw is not None:
        raise CommandError(flaw)
    return snapshot


def _read_classic(reader: Reader) -> ClassicMember | None:
    if not _flag(reader):
        return None
    session_timeout_ms = reader.number(I32)
    count = reader.count(PROTOCOLS_MAX, 6)
    protocols = tuple([Protocol(reader.text(), reader.blob()) for _ in range(count)])
    if session_timeout_ms <= 0 or not protocols:
        raise CommandError("a classic member without a session or a protocol")
    return ClassicMember(session_timeout_ms, protocols)


def _flag(reader: Reader) -> bool:
    value = reader.number(U8)
    if value > 1:
        raise CommandError(f"a flag with the value {value}")
    return bool(value)


def _read_assigned(reader: Reader, *, with_since: bool) -> AssignedSnapshot:
    group = ConsumerGroupId(reader.text())
    prev_revision, epoch, assignor = reader.number(I64), reader.number(I32), reader.text()
    if assignor not in ASSIGNORS:
        raise CommandError(f"assignor {assignor[:40]!r}")
    members = tuple(
        [_read_member(reader, with_since) for _ in range(reader.count(MEMBERS_MAX, 40))]
    )
    topics = _read_topics(reader)
    snapshot = AssignedSnapshot(group, prev_revision, epoch, assignor, members, topics)
    flaw = snapshot.flaw()
    if flaw is not None:
        raise CommandError(flaw)
    return snapshot


def _read_topics(reader: Reader) -> Mapping[bytes, int]:
    topics: dict[bytes, int] = {}
    last = b""
    for _ in range(reader.count(TOPICS_MAX, 4 + TOPIC_ID_BYTES + 4)):
        topic_id, count = _topic_id(reader), reader.number(I32)
        if topic_id <= last or count < 0:
            raise CommandError(
                "topics repeated or out of order, or a negative number of partitions"
            )
        topics[topic_id] = count
        last = topic_id
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


def _write_since(writer: Writer, member: AssignedMember) -> None:
    """An epoch for each part the member holds, in the order of the parts; NOT_KNOWN if unknown."""
    for part in _held(member.assigned, member.revoking):
        writer.pack(I32, member.since.get(part, NOT_KNOWN))


def _held(assigned: Share, revoking: Share) -> list[Part]:
    return sorted(assigned) + sorted(revoking)


def _read_since(reader: Reader, assigned: Share, revoking: Share) -> dict[Part, int]:
    since = {part: reader.number(I32) for part in _held(assigned, revoking)}
    return {part: epoch for part, epoch in since.items() if epoch != NOT_KNOWN}


def _read_member(reader: Reader, with_since: bool) -> AssignedMember:
    member_id, instance_id = MemberId(reader.text()), reader.optional_text()
    client_id, client_host = reader.text(), reader.text()
    topics = tuple([reader.text() for _ in range(reader.count(TOPICS_MAX, 2))])
    pattern, assignor, rack_id = (reader.optional_text() for _ in range(3))
    subscription = Subscription(topics, pattern, assignor, rack_id, reader.number(I32))
    epoch, previous_epoch = reader.number(I32), reader.number(I32)
    assigned, revoking, target = (_read_share(reader) for _ in range(3))
    return AssignedMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        subscription=subscription,
        epoch=epoch,
        previous_epoch=previous_epoch,
        assigned=assigned,
        revoking=revoking,
        target=target,
        since=_read_since(reader, assigned, revoking) if with_since else {},
    )


def _read_share(reader: Reader) -> Share:
    count = reader.count(PARTITIONS_MAX, 4 + TOPIC_ID_BYTES + 4)
    parts = [(_topic_id(reader), reader.number(I32)) for _ in range(count)]
    if parts != sorted(set(parts)):
        raise CommandError("partitions repeated or out of order")
    return frozenset(parts)


def _topic_id(reader: Reader) -> bytes:
    topic_id = reader.blob()
    if len(topic_id) != TOPIC_ID_BYTES:
        raise CommandError(f"a topic id of {len(topic_id)} bytes")
    return topic_id
