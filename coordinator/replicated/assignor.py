"""Broker-side assignors (KIP-848): which member gets which partition of a consumer group.

There are two, with Kafka's names. `uniform`: the members' numbers of partitions differ by at most
one, as far as subscriptions allow, and members keep what they have where possible. `range`: each
member has one contiguous range of each topic, with the same numbers in every topic, so that topics
with equal keys can be joined.

Pure, and the same everywhere: members and topics are taken in the order of their ids.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from coordinator.model import MemberId

Part: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""
Share: TypeAlias = frozenset[Part]

NOTHING: Final[Share] = frozenset()
UNIFORM: Final = "uniform"
RANGE: Final = "range"
ASSIGNORS: Final = (UNIFORM, RANGE)
"""The first one is the default if no member asks for another."""


Plan: TypeAlias = dict[MemberId, Share]


class MemberSubscription(NamedTuple):
    """The topics one member subscribes to (their ids), and its previous target assignment."""

    topics: frozenset[bytes]
    before: Share


def share_out(
    assignor: str,
    subscriptions: Mapping[MemberId, MemberSubscription],
    partitions: Mapping[bytes, int],
) -> Plan:
    """Every partition of a subscribed topic goes to exactly one of its subscribers."""
    assert assignor in ASSIGNORS
    if assignor == RANGE:
        return _range(subscriptions, partitions)
    return _uniform(subscriptions, partitions)


def _range(
    subscriptions: Mapping[MemberId, MemberSubscription], partitions: Mapping[bytes, int]
) -> Plan:
    shares: dict[MemberId, set[Part]] = {member: set() for member in subscriptions}
    for topic in sorted(partitions):
        takers = [
            member for member in sorted(subscriptions) if topic in subscriptions[member].topics
        ]
        if not takers:
            continue
        base, extra = divmod(partitions[topic], len(takers))
        first = 0
        for at, member in enumerate(takers):
            stop = first + base + (at < extra)
            shares[member].update((topic, one) for one in range(first, stop))
            first = stop
    return {member: frozenset(share) for member, share in shares.items()}


def _uniform(
    subscriptions: Mapping[MemberId, MemberSubscription], partitions: Mapping[bytes, int]
) -> Plan:
    takers = {
        topic: [member for member in sorted(subscriptions) if topic in subscriptions[member].topics]
        for topic in sorted(partitions)
    }
    shares: dict[MemberId, set[Part]] = {member: set() for member in sorted(subscriptions)}
    free = {(topic, one) for topic in takers if takers[topic] for one in range(partitions[topic])}
    for member in shares:  # a partition that two had goes to the first of them
        subscription = subscriptions[member]
        kept = {
            part for part in subscription.before if part in free and part[0] in subscription.topics
        }
        shares[member] |= kept
        free -= kept
    for part in sorted(free):
        poorest = min(takers[part[0]], key=lambda member: len(shares[member]))
        shares[poorest].add(part)
    _level(shares, takers)
    return {member: frozenset(share) for member, share in shares.items()}


def _level(shares: dict[MemberId, set[Part]], takers: Mapping[bytes, list[MemberId]]) -> None:
    """Move single partitions from members that have at least two more than another taker of the
    topic.

    Each move makes the sum of the squares smaller, so this ends.
    """
    moved = True
    while moved:
        moved = False
        for rich in sorted(shares, key=lambda member: -len(shares[member])):
            for topic in sorted({topic for topic, _ in shares[rich]}):
                parts = sorted((part for part in shares[rich] if part[0] == topic), reverse=True)
                for part in parts:
                    poorest = min(takers[topic], key=lambda member: len(shares[member]))
                    if len(shares[rich]) - len(shares[poorest]) < 2:
                        break
                    shares[rich].remove(part)
                    shares[poorest].add(part)
                    moved = True
