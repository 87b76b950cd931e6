"""What a stream has read, and what its next micro-batch reads: pure arithmetic on offsets.

Spark stores the end of each micro-batch as JSON in the checkpoint before the batch runs; a batch
that did not finish is run again between the same ends. The JSON is that of Spark's own Kafka
source, `{"topic": {"0": 17}}`: the next offset to read of each partition. Equal positions give
equal text, because that is how Spark sees that there is nothing new.

In addition, under "/plan" (no topic can have that name), an end says how its micro-batch is cut
into tasks and, where its start is not simply the previous end, where it begins:

- A batch that is run again must have the same tasks, for the sink knows rows it has written by the
  task that wrote them. So the cut is that of the end, not that of today's options.
- The start of the first micro-batch is in no checkpoint. Whoever asks again for the "latest" offset
  gets another one: so the first end carries its own start.
- The same holds for a partition whose log was made anew: it begins again elsewhere.
- A topic that was deleted and made anew has the same name and other records, however long its log
  is. So an end has the ids of its topics, as far as brokers tell them. The ends of releases before
  this one have none: the first end after them does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from pyspark_evenkeel.client.cluster import Place
from pyspark_evenkeel.errors import ConfigurationError

PLAN: Final = "/plan"
_CUT_NAMES: Final = {
    "min_tasks": "minPartitions",
    "records_max": "maxRecordsPerPartition",
    "tasks_max": "maxPartitions",
}
_FROM: Final = "from"
_INITIAL: Final = "initial"
_IDS: Final = "topicIds"
_ID_BYTES: Final = 16


@attrs.frozen
class Cut:
    """How ranges become tasks; None: no bound. The options have the same names."""

    min_tasks: int | None = None
    records_max: int | None = None
    tasks_max: int | None = None


@attrs.frozen
class Offsets:
    """A position in every partition, and how the micro-batch that ends there is run."""

    next: Mapping[Place, int]
    """The first offset that is not read."""
    cut: Cut = attrs.Factory(Cut)
    begins: Mapping[Place, int] = attrs.field(factory=dict)
    """Where its micro-batch begins in these partitions, whatever the previous end says."""
    initial: bool = False
    """A new query begins here, and no checkpoint has this offset yet."""
    topic_ids: Mapping[str, bytes] = attrs.field(factory=dict)
    """The ids of the topics that are meant, if brokers report them."""


class Range(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`."""

    place: Place
    start: int
    end: int

    @property
    def size(self) -> int:
        """At most this many records: compaction and markers leave gaps."""
        return self.end - self.start


Task = tuple[Range, ...]
"""What one Spark task reads, in this order."""


# -- JSON -----------------------------------------------------------------------------------------


def nested(positions: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """In the format of Spark's Kafka source, in a fixed order."""
    document: dict[str, dict[str, int]] = {}
    for place in sorted(positions):
        document.setdefault(place.topic, {})[str(place.partition)] = positions[place]
    return document


def flat(document: object, what: str) -> dict[Place, int]:
    """The inverse of `nested`; `what` names the document in errors.

    Raises:
        ConfigurationError: if it does not have the format of `nested`.
    """
    positions = {}
    for topic, partitions in _items(document, what):
        for partition, position in _items(partitions, what):
            if not (partition.isdecimal() and type(position) is int):
                raise _malformed(what, {topic: {partition: position}})
            positions[Place(topic, int(partition))] = position
    return positions


def _items(document: object, what: str) -> Iterable[tuple[str, Any]]:
    """`Any`: JSON from outside, which the caller checks."""
    if not isinstance(document, dict):
        raise _malformed(what, document)
    return document.items()


def _malformed(what: str, document: object) -> ConfigurationError:
    return ConfigurationError(
        f"{what} cannot be read",
        why=f"{document!r} is not of the form {{topic: {{partition: number}}}}",
        advice='write {"topic": {"0": 23, "1": -2}}',
    )


def to_json(offsets: Offsets) -> dict[str, Any]:
    """The document that Spark writes into the checkpoint (`Any`: JSON)."""
    plan: dict[str, Any] = {
        name: value
        for field, name in _CUT_NAMES.items()
        if (value := getattr(offsets.cut, field)) is not None
    }
    if offsets.begins:
        plan[_FROM] = nested(offsets.begins)
    if offsets.initial:
        plan[_INITIAL] = True
    if offsets.topic_ids:
        plan[_IDS] = {topic: offsets.topic_ids[topic].hex() for topic in sorted(offsets.topic_ids)}
    document: dict[str, Any] = nested(offsets.next)
    return document | {PLAN: plan} if plan else document


def from_json(document: Mapping[str, Any]) -> Offsets:
    """What Spark read from the checkpoint, or just got from `to_json`.

    Raises:
        ConfigurationError: if another source wrote it.
    """
    what = "the checkpoint's offset"
    positions = flat({key: value for key, value in document.items() if key != PLAN}, what)
    plan = dict(_items(document.get(PLAN, {}), what))
    return Offsets(
        positions,
        Cut(**{field: plan.get(name) for field, name in _CUT_NAMES.items()}),
        flat(plan.get(_FROM, {}), what),
        bool(plan.get(_INITIAL)),
        _topic_ids(plan.get(_IDS, {}), what),
    )


def _topic_ids(document: object, what: str) -> dict[str, bytes]:
    found = {}
    for topic, text in _items(document, what):
        try:
            found[topic] = bytes.fromhex(text)
        except (TypeError, ValueError):
            found[topic] = b""
        if len(found[topic]) != _ID_BYTES:
            raise ConfigurationError(
                f"{what} cannot be read", why=f"{text!r} is not the id of a topic"
            )
    return found


# -- from one end to the next ---------------------------------------------------------------------


def apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to the weights (> 0); no share exceeds its weight.

    Every share is at least one if `total` suffices for that, otherwise the heaviest get one: a
    short queue beside a long one is not starved. The remainder from rounding goes to the largest
    fractions, so that the shares add up.
    """
    if total >= sum(weights):
        return list(weights)
    if total <= len(weights):
        heaviest = sorted(range(len(weights)), key=lambda one: (-weights[one], one))[:total]
        return [int(one in set(heaviest)) for one in range(len(weights))]
    rest = total - len(weights)
    wanted = sum(weights) - len(weights)
    shares = [1 + rest * (weight - 1) // wanted for weight in weights]
    fractions = [rest * (weight - 1) % wanted for weight in weights]
    unluckiest = sorted(range(len(weights)), key=lambda one: (-fractions[one], one))
    for one in unluckiest[: total - sum(shares)]:
        shares[one] += 1
    return shares


def limited(ranges: Sequence[Range], records_max: int) -> dict[Place, int]:
    """Where to stop so that at most `records_max` records are read; no position goes back."""
    shares = apportioned(records_max, [one.size for one in ranges])
    return {one.place: one.start + share for one, share in zip(ranges, shares, strict=True)}


def ranges_between(start: Mapping[Place, int], end: Mapping[Place, int]) -> list[Range]:
    """What lies between two positions, by topic and partition.

    A new partition begins at 0. If the end is not above the start, there is nothing to read.
    """
    return [
        Range(place, begin, end[place])
        for place in sorted(end)
        if (begin := start.get(place, 0)) < end[place]
    ]


# -- tasks ----------------------------------------------------------------------------------------


def tasks_between(start: Offsets, end: Offsets) -> list[Task]:
    """The tasks of the micro-batch between the two: always the same for the same arguments."""
    if end.initial:
        return []
    ranges = ranges_between({**start.next, **end.begins}, end.next)
    return tasks_of(ranges, end.cut)


def tasks_of(ranges: Sequence[Range], cut: Cut) -> list[Task]:
    """One task per range; large ranges are split first, and packed together only on request."""
    pieces = list(ranges)
    if cut.records_max is not None:
        pieces = _split(pieces, [-(-one.size // cut.records_max) for one in pieces])
    if cut.min_tasks is not None and len(pieces) < cut.min_tasks:
        pieces = _split(pieces, apportioned(cut.min_tasks, [one.size for one in pieces]))
    if cut.tasks_max is not None and len(pieces) > cut.tasks_max:
        return _packed(pieces, cut.tasks_max)
    return [(one,) for one in pieces]


def _split(ranges: Sequence[Range], counts: Sequence[int]) -> list[Range]:
    return [
        Range(
            one.place,
            one.start + one.size * number // count,
            one.start + one.size * (number + 1) // count,
        )
        for one, count in zip(ranges, counts, strict=True)
        for number in range(count)
    ]


def _packed(ranges: Sequence[Range], tasks_max: int) -> list[Task]:
    """The largest range first, each to the task with the fewest records so far."""
    bins: list[list[Range]] = [[] for _ in range(tasks_max)]
    loads = [0] * tasks_max
    for one in sorted(ranges, key=lambda one: (-one.size, one)):
        lightest = loads.index(min(loads))
        bins[lightest].append(one)
        loads[lightest] += one.size
    return [tuple(sorted(each)) for each in bins]
