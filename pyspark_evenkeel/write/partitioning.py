"""The destination of each row, by the rules of Kafka's own clients, over Arrow columns.

A row that names its partition goes there. Otherwise a key's partition follows from its hash
(murmur2, as in every Kafka client, so that a key stays in one partition whoever writes it), and
rows without a key all go to one partition, a different one for each task and micro-batch: as even
over time as round robin, in larger batches, and the same when the micro-batch is run again.

A topic's number of partitions is looked up once per task: a topic that grows meanwhile gets its
first rows in a new partition from the next task on.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import attrs
import numpy as np
import pyarrow.compute as pc

from pyspark_evenkeel.errors import RowError
from wire import murmur
from wire.cluster_view import TopicPartition
from wire.records.columns import Column, Numbers

LONG_KEY_BYTES: Final = 512
"""Longer keys are hashed one by one: hashing all rows word by word pays for many short keys."""
PARTITION_ADVICE: Final = "partitions are counted from 0; null leaves the choice to the sink"

Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint32]]


class _Topic(NamedTuple):
    partitions: int
    first: int
    """The number of its partition 0 among all destinations."""


@attrs.define(kw_only=True)
class Router:
    """Numbers the destinations of one task as their topics come up.

    `partitions_of` raises if there is no such topic. `keyless` chooses the partition of rows that
    have no key: any number, a different one for each task and micro-batch.
    """

    partitions_of: Callable[[str], int]
    keyless: int
    _topics: dict[str, _Topic] = attrs.field(factory=dict, init=False)
    _places: list[TopicPartition] = attrs.field(factory=list, init=False)

    def place(self, number: int) -> TopicPartition:
        return self._places[number]

    @property
    def destinations(self) -> int:
        """How many destinations have numbers."""
        return len(self._places)

    def partition_count(self, topic: str) -> int:
        """As this task sees it, from its beginning to its end."""
        return self._topic(topic).partitions

    def route(
        self,
        topics: Column | str,
        partitions: Column | None,
        keys: Column,
        keyless: Numbers | None = None,
    ) -> Numbers:
        """The number of each row's destination.

        `topics` is one topic for all rows or a column of strings, `partitions` a column of int32.
        `keyless` replaces the number for all rows without a key.

        Raises:
            RowError: if a row has no topic, or names a partition that its topic does not have.
        """
        count: Numbers | int
        first: Numbers | int
        if isinstance(topics, str):
            count, first = self._topic(topics)
        else:
            count, first = self._by_row(topics)
        chosen = self._by_key(keys, count, self.keyless if keyless is None else keyless)
        if partitions is not None:
            given = partitions.is_valid().to_numpy(zero_copy_only=False)
            asked = pc.fill_null(partitions, 0).to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero((asked < 0) | (asked >= count))
            if len(wrong):
                row = int(wrong[0])
                topic = topics if isinstance(topics, str) else topics[row].as_py()
                raise RowError(
                    f"a row is for partition {asked[row]} of topic '{topic}'",
                    why=f"it has {self._topic(topic).partitions} partitions",
                    advice=PARTITION_ADVICE,
                )
            chosen = np.where(given, asked, chosen)
        return chosen + first

    def _by_row(self, topics: Column) -> tuple[Numbers, Numbers]:
        """The number of partitions of each row's topic, and where its destinations begin."""
        if topics.null_count:
            raise RowError(
                "a row has no topic",
                why="its column 'topic' is null, and there is no option 'topic'",
                advice="set either",
            )
        coded = topics.dictionary_encode()
        known = [self._topic(name) for name in coded.dictionary.to_pylist()]
        codes = coded.indices.to_numpy(zero_copy_only=False)
        count = np.array([one.partitions for one in known], np.int64)[codes]
        return count, np.array([one.first for one in known], np.int64)[codes]

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = _Topic(self.partitions_of(name), len(self._places))
            self._topics[name] = found
            self._places += [TopicPartition(name, number) for number in range(found.partitions)]
        return found

    def _by_key(self, keys: Column, count: Numbers | int, any_number: Numbers | int) -> Numbers:
        keyless = any_number % count
        if keys.null_count == len(keys):
            return np.broadcast_to(np.asarray(keyless), (len(keys),))
        by_hash = (hashes(keys) & np.uint32(murmur.POSITIVE)).astype(np.int64) % count
        if not keys.null_count:
            return by_hash
        return np.where(
            keys.is_valid().to_numpy(zero_copy_only=False), by_hash, self.keyless % count
        )


def task_of(place: TopicPartition, tasks: int) -> int:
    """Which of that many tasks writes to a destination, if each has a single writer."""
    return (crc32(place.topic.encode()) + place.partition) % tasks


def hashes(keys: Column) -> Hashes:
    """`wire.murmur.murmur2` of each value of a binary column; undefined for a null."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, 4 * keys.offset)
    starts = bounds[:-1].astype(np.int64)
    sizes = np.diff(bounds)
    found = np.uint32(murmur.SEED) ^ sizes.astype(np.uint32)
    content = keys.buffers()[2]
    if content is None or not len(content):
        return _finished(found)
    data = np.frombuffer(content, np.uint8)
    short = sizes <= LONG_KEY_BYTES
    words = np.where(short, sizes >> 2, 0)
    multiplier = np.uint32(murmur.MULTIPLIER)
    for word in range(int(words.max())):
        rows = np.flatnonzero(words > word)
        k = _little_endian(data, starts[rows] + 4 * word) * multiplier
        k ^= k >> np.uint32(24)
        found[rows] = found[rows] * multiplier ^ k * multiplier
    rows = np.flatnonzero(short & (sizes & 3 > 0))
    kept = (np.uint32(1) << (8 * (sizes[rows] & 3)).astype(np.uint32)) - np.uint32(1)
    tail = _little_endian(data, starts[rows] + 4 * words[rows]) & kept
    found[rows] = (found[rows] ^ tail) * multiplier
    found = _finished(found)
    for row in np.flatnonzero(~short):
        found[row] = murmur.murmur2(bytes(data[bounds[row] : bounds[row + 1]]))
    return found


def _little_endian(data: Any, at: Numbers) -> Hashes:  # noqa: ANN401 (an array of bytes)
    """Four bytes from each position; beyond the end the last ones are repeated."""
    last = len(data) - 1
    found = data[at].astype(np.uint32)
    for byte in range(1, 4):
        found |= data[np.minimum(at + byte, last)].astype(np.uint32) << np.uint32(8 * byte)
    return found


def _finished(found: Hashes) -> Hashes:
    found = (found ^ found >> np.uint32(13)) * np.uint32(murmur.MULTIPLIER)
    return found ^ found >> np.uint32(15)
