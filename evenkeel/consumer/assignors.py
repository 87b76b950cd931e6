"""How the leader of a consumer group assigns partitions to its members, given their metadata.

RANGE and ROUND_ROBIN are Kafka's, so that members of other clients get the same shares. Sticky
moves as little as evenness allows, and never gives a partition away in the same round in which
another member still owns it (KIP-429): that member gives it up first, and starts another round.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, islice

from evenkeel.config import Assignor
from evenkeel.errors import ConfigurationError
from evenkeel.sharing import Member, PartitionAssignor, Shares
from wire.cluster_view import TopicPartition


def name_of(assignor: Assignor | PartitionAssignor) -> str:
    """The name that the members of a consumer group agree on."""
    return assignor.value if isinstance(assignor, Assignor) else assignor.name


def share(
    assignor: Assignor | PartitionAssignor, members: Sequence[Member], partitions: Mapping[str, int]
) -> Shares:
    """The partitions of every member. `partitions` has how many partitions each known topic has.

    Raises:
        ConfigurationError: if a user's assignor assigns a partition that does not exist, or twice.
    """
    ranked = sorted(members, key=lambda member: member.rank)
    match assignor:
        case Assignor.RANGE:
            return _range(ranked, partitions)
        case Assignor.ROUND_ROBIN:
            return _round_robin(ranked, partitions)
        case Assignor.COOPERATIVE_STICKY:
            return _cooperative(ranked, partitions)
        case _:
            return _checked(assignor, ranked, partitions)


def _checked(
    assignor: PartitionAssignor, members: Sequence[Member], partitions: Mapping[str, int]
) -> Shares:
    """Check a user's shares: two members would read and commit the same partition twice, which is
    worse than no plan."""
    shares = assignor.assign(members, partitions)
    known = {member.id for member in members}
    given: set[TopicPartition] = set()
    for member, places in shares.items():
        for place in places:
            wrong = None
            if member not in known:
                wrong = f"to '{member}', which is not a member"
            elif not 0 <= place.partition < partitions.get(place.topic, 0):
                wrong = "which does not exist"
            elif place in given:
                wrong = "twice"
            if wrong is not None:
                what = f"assignor '{assignor.name}' gives {TopicPartition(*place)} {wrong}"
                raise ConfigurationError(what, advice="give each partition to one member at most")
            given.add(place)
    return {member.id: list(shares.get(member.id, ())) for member in members}


def _range(members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    """Each topic separately, in contiguous ranges; the first members get one more."""
    shares: Shares = {member.id: [] for member in members}
    for topic in sorted(partitions):
        takers = [member for member in members if topic in member.topics]
        at = 0
        for number, member in enumerate(takers):
            least, more = divmod(partitions[topic], len(takers))
            count = least + (number < more)
            shares[member.id] += [TopicPartition(topic, p) for p in range(at, at + count)]
            at += count
    return shares


def _round_robin(members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    """Deal all partitions in order round all members, skipping those without the topic."""
    shares: Shares = {member.id: [] for member in members}
    turn = cycle(members)
    for place in _wanted(members, partitions):
        for member in islice(turn, len(members)):
            if place.topic in member.topics:
                shares[member.id].append(place)
                break
    return shares


def _wanted(members: Iterable[Member], partitions: Mapping[str, int]) -> list[TopicPartition]:
    topics = {topic for member in members for topic in member.topics} & partitions.keys()
    return [
        TopicPartition(topic, number)
        for topic in sorted(topics)
        for number in range(partitions[topic])
    ]


def _cooperative(members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    owners = _owners(members, partitions)
    shares = _sticky(members, partitions, owners)
    return {
        member: [place for place in places if owners.get(place, member) == member]
        for member, places in shares.items()
    }


def _owners(members: Sequence[Member], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """The present owner of each partition. Of two members that claim one, the later generation is
    believed; if both are of the same generation, neither is."""
    claims: dict[TopicPartition, list[Member]] = defaultdict(list)
    for member in members:
        for place in member.owned:
            if place.topic in member.topics and place.partition < partitions.get(place.topic, 0):
                claims[place].append(member)
    owners = {}
    for place, claimants in claims.items():
        newest = max(member.generation for member in claimants)
        believed = [member for member in claimants if member.generation == newest]
        if len(believed) == 1:
            owners[place] = believed[0].id
    return owners


def _sticky(
    members: Sequence[Member],
    partitions: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
) -> Shares:
    """Members keep theirs; the rest goes to those with the fewest; then level."""
    held: dict[str, list[TopicPartition]] = {member.id: [] for member in members}
    free = []
    for place in _wanted(members, partitions):
        owner = owners.get(place)
        if owner is None:
            free.append(place)
        else:
            held[owner].append(place)
    # Partitions that few members can take come first, or no member may be left for them.
    takers = {
        topic: [member.id for member in members if topic in member.topics] for topic in partitions
    }
    free.sort(key=lambda place: len(takers[place.topic]))
    for place in free:
        least = min(takers[place.topic], key=lambda member: len(held[member]))
        held[least].append(place)
    while _level(held, takers):
        pass
    return {member: sorted(places) for member, places in held.items()}


def _level(held: Shares, takers: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition from a member to one with at least two fewer, if there is such a pair.

    Each move makes the sum of squares smaller, so this ends.
    """
    for rich in sorted(held, key=lambda member: -len(held[member])):
        for place in reversed(held[rich]):
            poor = min(takers[place.topic], key=lambda member: len(held[member]))
            if len(held[rich]) - len(held[poor]) > 1:
                held[rich].remove(place)
                held[poor].append(place)
                return True
    return False
