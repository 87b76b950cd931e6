"""From a user's options to offsets: which partitions, where to start, where to end.

The driver asks the cluster here, for batch and streaming queries alike. The plan consists of
numbers: `latest` and times are looked up once, and tasks get offsets.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Cluster, Place
from pyspark_evenkeel.errors import ConfigurationError, RefusedError, UnavailableError
from pyspark_evenkeel.options import (
    Assign,
    AtTime,
    Bound,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Subscription,
)
from wire.error_codes import ErrorCode

NOTHING_SO_LATE: Final = -1
TURNS_MAX: Final = 3
"""How often planning is repeated because a topic was replaced meanwhile."""
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def is_unknown(error: RefusedError) -> bool:
    """Whether it says that a topic or partition does not exist."""
    return error.code in _UNKNOWN


def topic_ids(cluster: Cluster, places: Iterable[Place]) -> dict[str, bytes]:
    """The topic ids that the cluster's client uses for them."""
    return cluster.topic_ids(place.topic for place in places)


def recreated_meanwhile() -> UnavailableError:
    """A plan has offsets of one topic: half of these would belong to another."""
    return UnavailableError(
        "the query cannot be planned",
        why=f"a topic was deleted and recreated during the requests, {TURNS_MAX} times",
    )


def places_of(
    cluster: Cluster, subscription: Subscription, known: Collection[Place] = ()
) -> list[Place]:
    """The subscribed partitions that exist, in order.

    A partition that was named and does not exist is an error, unless it was `known` before: then it
    is gone, and the caller decides what that means.

    Raises:
        RefusedError: if a topic does not exist, or may not be read.
        ConfigurationError: if a topic has fewer partitions than were named.
    """
    match subscription:
        case SubscribePattern(pattern):
            counts = {
                topic: count
                for topic, count in cluster.topics(None).items()
                if pattern.fullmatch(topic)
            }
        case Subscribe(topics):
            counts = _counts(cluster, topics, known)
        case Assign(places):
            counts = _counts(cluster, sorted({place.topic for place in places}), known)
            missing = {place for place in places if place.partition >= counts.get(place.topic, 0)}
            if missing - set(known):
                raise ConfigurationError(
                    f"there is no partition {min(missing)}",
                    why=f"its topic has {counts[min(missing).topic]}",
                    advice="correct the option assign",
                )
            return sorted(places - missing)
    return sorted(Place(topic, number) for topic in counts for number in range(counts[topic]))


def _counts(cluster: Cluster, topics: Sequence[str], known: Collection[Place]) -> dict[str, int]:
    try:
        return cluster.topics(topics)
    except RefusedError as error:
        gone = {place.topic for place in known}.intersection(topics)
        if not is_unknown(error) or not gone:
            raise
    counts: dict[str, int] = {}
    for topic in topics:
        try:
            counts |= cluster.topics([topic])
        except RefusedError as error:
            if not is_unknown(error) or topic not in gone:
                raise
    return counts


def starts(cluster: Cluster, options: SourceOptions, places: Collection[Place]) -> dict[Place, int]:
    """Where a new query begins in each partition.

    Raises:
        ConfigurationError: if the options do not cover all of them, or name others.
    """
    reached = _reached(cluster, options, options.starting, places)
    found = _resolved(cluster, options, "starting", options.starting, places)
    late = sorted(place for place, offset in found.items() if offset == NOTHING_SO_LATE)
    if late and not options.nothing_so_late_is_latest:
        raise ConfigurationError(
            f"no record of {late[0]} is as new as the starting timestamp",
            why=f"nor of {len(late) - 1} other partitions" if len(late) > 1 else "",
            advice="choose an earlier one, or set startingOffsetsByTimestampStrategy=latest",
        )
    return found | {place: reached[place] for place in late}


def ends(cluster: Cluster, options: SourceOptions, places: Collection[Place]) -> dict[Place, int]:
    """Where a batch query ends in each partition, exclusive.

    Raises:
        ConfigurationError: if the options do not cover all of them, or name others.
    """
    reached = _reached(cluster, options, options.ending, places)
    found = _resolved(cluster, options, "ending", options.ending, places)
    late = [place for place, offset in found.items() if offset == NOTHING_SO_LATE]
    return found | {place: reached[place] for place in late}


def _reached(
    cluster: Cluster, options: SourceOptions, bound: Bound, places: Collection[Place]
) -> dict[Place, int]:
    """Where the logs end before times are looked up: records that arrive in between may be as new
    as these times, and must neither fall below such an ending nor be left out after such a
    start."""
    return ends_of_logs(cluster, options, places) if isinstance(bound, AtTime) else {}


def ends_of_logs(
    cluster: Cluster, options: SourceOptions, places: Collection[Place]
) -> dict[Place, int]:
    """The offsets up to which there is something to read now."""
    return _asked(cluster, options, dict.fromkeys(places, LATEST))


def begins_of_logs(
    cluster: Cluster, options: SourceOptions, places: Collection[Place]
) -> dict[Place, int]:
    """The first offsets that the logs still have."""
    return _asked(cluster, options, dict.fromkeys(places, EARLIEST))


def first_since(
    cluster: Cluster, options: SourceOptions, times: Mapping[Place, int]
) -> dict[Place, int]:
    """The first offset whose record is not older than this time (ms); NOTHING_SO_LATE if none
    is."""
    return _asked(cluster, options, times)


def _resolved(
    cluster: Cluster,
    options: SourceOptions,
    side: str,
    bound: Bound,
    places: Collection[Place],
) -> dict[Place, int]:
    """NOTHING_SO_LATE if no record is as new as the requested time."""
    if bound.everywhere is not None:
        wanted = dict.fromkeys(places, bound.everywhere)
    else:
        wanted = dict(bound.each)
        if missing := sorted(set(places) - wanted.keys()):
            raise _uneven(side, f"{missing[0]} is not among them", "name every partition")
        if too_many := sorted(wanted.keys() - set(places)):
            raise _uneven(side, f"{too_many[0]} is not subscribed to, or not there", "leave it out")
    if isinstance(bound, AtTime):
        return first_since(cluster, options, wanted)
    to_ask = {place: offset for place, offset in wanted.items() if offset < 0}
    return wanted | _asked(cluster, options, to_ask)


def _uneven(side: str, why: str, advice: str) -> ConfigurationError:
    what = f"the {side} offsets are not those of the subscribed partitions"
    return ConfigurationError(what, why=why, advice=advice)


def _asked(cluster: Cluster, options: SourceOptions, at: Mapping[Place, int]) -> dict[Place, int]:
    if not at:
        return {}
    found = cluster.offsets(at, isolation_committed=options.committed_only)
    return {place: found[place].offset for place in at}
