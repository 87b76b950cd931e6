"""From a classic consumer group to one with broker-side assignment and back, as in Kafka (KIP-848).

A group of Kafka's consumers becomes one with broker-side assignment when the first member joins
that speaks the new protocol, and a classic one again when the last of these has gone. Generation
and epoch are one count, so a member's commits and heartbeats go on with the number that it knows.
The functions here only translate; `assigning` decides and writes the result to the log.
"""

from collections.abc import Iterable, Mapping

import attrs

from coordinator.live.group import LiveGroup, LiveMember, choose_protocol
from coordinator.live.live_assigned import LiveAssigned
from coordinator.model import MemberId
from coordinator.replicated.assigned_group import AssignedMember, ClassicMember, Subscription
from coordinator.replicated.assignor import Part, Share
from coordinator.states import GroupState
from coordinator.subscription import (
    CONSUMER_PROTOCOL,
    NO_GENERATION,
    ConsumerSubscription,
    Named,
    read_assignment,
    read_subscription,
    write_assignment,
)
from coordinator.topics import Topics


def upgraded(group: LiveGroup, topics: Topics) -> LiveAssigned:
    """The same members in a group with broker-side assignment; nobody loses what it holds.

    Raises:
        SubscriptionError: if what a member says about itself cannot be read.
    """
    result = LiveAssigned(group.name, group.revision, group.generation, converts=True)
    claims: list[tuple[int, MemberId, Share]] = []
    for member in group.members.values():
        said = read_subscription(member.metadata(group.protocol_name) or member.protocols[0][1])
        generation, held = _held(group, member, said)
        claims.append((-generation, member.member_id, parts_of(held, topics)))
        result.put(
            AssignedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscription=subscription_of(said, member.rebalance_timeout_ms),
                epoch=group.generation,
                previous_epoch=group.generation,
                classic=ClassicMember(member.session_timeout_ms, member.protocols),
            )
        )
    taken: set[Part] = set()
    for _, member_id, share in sorted(claims, key=lambda claim: claim[:2]):
        free = share - taken
        result.put(attrs.evolve(result.members[member_id], assigned=free, target=free))
        taken |= share
    return result


def _held(
    group: LiveGroup, member: LiveMember, said: ConsumerSubscription
) -> tuple[int, frozenset[Named]]:
    """What a classic member may consume, and the generation in which it was given it.

    While it takes part in a rebalance that is what it has just said: a cooperative member goes on
    with what it names, an eager one has given everything up. Of two members that claim a
    partition, one has slept through a generation. The generation is the member's own claim: it
    counts up to the last one in which the member can have been given something.
    """
    completing = group.state == GroupState.COMPLETING_REBALANCE
    if member.join is not None or completing or not member.established:
        last = group.generation - (completing or not member.established)
        known = said.generation if said.generation != NO_GENERATION else group.generation - 1
        return min(known, last), said.owned
    return group.generation, read_assignment(member.assignment)


def downgraded(group: LiveAssigned, generation_min: int, topics: Topics) -> LiveGroup:
    """The same classic members in a classic group, stable, in the newest generation that any of
    them has reached, with what they may still consume."""
    assert group.only_classic()
    generation = max(generation_min, *(one.epoch for one in group.members.values()))
    result = LiveGroup(
        group.name,
        GroupState.STABLE,
        generation,
        CONSUMER_PROTOCOL,
        revision=group.revision,
        converts=True,
    )
    names = {topic_id: name for name, (topic_id, _) in topics.ids.items()}
    for one in group.members.values():
        assert one.classic is not None
        result.add(
            LiveMember(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                one.classic.session_timeout_ms,
                one.subscription.rebalance_timeout_ms,
                one.classic.protocols,
                assignment_of(one, one.assigned | one.revoking, names),
                established=True,
            )
        )
    offers = {name: one.protocols for name, one in result.members.items()}
    result.leader = next(iter(offers))
    result.protocol_name = choose_protocol(offers, result.leader)
    result.join_version = result.sync_version = result.touch()
    return result


def subscription_of(said: ConsumerSubscription, rebalance_timeout_ms: int) -> Subscription:
    return Subscription(
        tuple(sorted(set(said.topics))), None, None, said.rack_id, rebalance_timeout_ms
    )


def parts_of(named: Iterable[Named], topics: Topics) -> Share:
    """Of these partitions those that exist, by the ids of their topics."""
    return frozenset(
        (topics.ids[topic][0], partition)
        for topic, partition in named
        if topic in topics.ids and 0 <= partition < topics.ids[topic][1]
    )


def assignment_of(member: AssignedMember, share: Share, names: Mapping[bytes, str]) -> bytes:
    """What a classic member is told to consume; topics that are gone are left out."""
    assert member.classic is not None
    version = read_subscription(member.classic.protocols[0].metadata).version
    held = [(names[topic], partition) for topic, partition in share if topic in names]
    return write_assignment(version, held)
