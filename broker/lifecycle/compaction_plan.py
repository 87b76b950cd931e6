"""Which partition to compact next, and how much of it at once: a function of its files.

As in Kafka, what earlier rounds have processed is *clean*, newer data is *dirty*. A partition is
due when enough of its bytes are dirty, or when its oldest dirty record has waited too long. A file
with a record younger than `min.compaction.lag.ms` is left alone, with all later files; so are the
file that is still written to, and the data in the node's log: the newest records are always
complete.

How far a file is clean is stored in the file itself (`clean_to`), so it is correct after a crash.
Files from another node lack it and count as dirty.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from balancer.registry.records import Topic
from broker.config import BrokerConfig
from broker.lifecycle.retention import segments_of
from broker.topic_configs import NO_LIMIT_MS, CompactionRules, compaction_rules, is_compacted
from paxos.ids import GroupId
from storage.cold.format import ColdFacts

MERGED_FILES_MAX: Final = 1_024
"""Files merged into one; bounds the names that a crash may leave to be removed."""

REPAIRED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Held in memory until all of it has arrived."""


@attrs.frozen
class Compacted:
    """A partition of a compacted topic."""

    rules: CompactionRules
    segment_bytes: int


def compacted_partitions(topics: Iterable[Topic], config: BrokerConfig) -> Mapping[int, Compacted]:
    """All partitions of compacted topics, by uid."""
    found: dict[int, Compacted] = {}
    for topic in topics:
        if is_compacted(topic.configs):
            rules = compaction_rules(topic.configs, config, 1)
            compacted = Compacted(rules, segments_of(topic.configs, config).bytes)
            found.update((place.uid, compacted) for place in topic.partitions)
    return found


class Waiting(NamedTuple):
    """A partition whose records must not wait for compaction for long (`max.compaction.lag.ms`)."""

    group: GroupId
    uid: int
    rules: CompactionRules


def impatient_partitions(topics: Iterable[Topic], config: BrokerConfig) -> list[Waiting]:
    """All partitions of compacted topics with such a limit."""
    found: list[Waiting] = []
    for topic in topics:
        rules = compaction_rules(topic.configs, config, 1)
        if is_compacted(topic.configs) and rules.lag_ms_max < NO_LIMIT_MS:
            found += [Waiting(place.group, place.uid, rules) for place in topic.partitions]
    return found


class Round(NamedTuple):
    """What a round over one partition would do."""

    uid: int
    start: int
    clean_to: int
    end: int
    """Dirty files that may be compacted reach from `clean_to` to this offset."""
    dirty_bytes: int
    bytes: int
    """Of all files below `end`."""
    due: bool
    overdue: bool
    """According to `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / self.bytes if self.bytes else 0.0


def round_of(
    uid: int, files: Sequence[ColdFacts], rules: CompactionRules, now_ms: int
) -> Round | None:
    """None if there is nothing dirty that may be compacted."""
    clean_to = _clean_to(files)
    end, size, dirty = 0, 0, 0
    first_dirty: ColdFacts | None = None
    for file in files:
        if not file.sealed:
            break
        if file.end > clean_to:
            if file.max_timestamp_ms > now_ms - rules.lag_ms_min:
                break
            first_dirty = first_dirty or file
            dirty += file.bytes
        end, size = file.end, size + file.bytes
    if first_dirty is None:
        return None
    overdue = 0 <= first_dirty.first_timestamp_ms < now_ms - rules.lag_ms_max
    due = overdue or dirty >= rules.dirty_ratio_min * size
    return Round(uid, files[0].base, clean_to, end, dirty, size, due, overdue)


def _clean_to(files: Sequence[ColdFacts]) -> int:
    """Where the clean part ends: a round goes through the files in order, and may have died."""
    reached = files[0].base if files else 0
    for file in files:
        reached = max(reached, min(file.clean_to, file.end))
        if reached < file.end:
            break
    return reached


def dirtiest(rounds: Iterable[Round]) -> Round | None:
    """The round to run first, of those that are due: overdue ones come before others."""
    due = [one for one in rounds if one.due]
    return max(due, key=lambda one: (one.overdue, one.dirty_ratio, -one.uid), default=None)


def rounds_of(
    partitions: Mapping[int, Compacted],
    files: Mapping[int, Sequence[ColdFacts]],
    now_ms: int,
) -> Iterator[Round]:
    for uid in sorted(partitions.keys() & files.keys()):
        found = round_of(uid, files[uid], partitions[uid].rules, now_ms)
        if found is not None:
            yield found


def merges(files: Sequence[ColdFacts], until: int, bytes_max: int) -> Iterator[Sequence[ColdFacts]]:
    """Neighbours that become one file each, of those that begin below `until`: shrinking data must
    not be scattered over ever more files. No merged file exceeds the limit of a file being
    written."""
    run: list[ColdFacts] = []
    size = 0
    for file in files:
        if file.base >= until or not file.sealed:
            break
        if run and (size + file.bytes > bytes_max or len(run) == MERGED_FILES_MAX):
            yield run
            run, size = [], 0
        run.append(file)
        size += file.bytes
    if run:
        yield run


def to_repair(files: Sequence[ColdFacts], log_start: int, start: int, end: int) -> tuple[int, int]:
    """The range of offsets to replace by a peer's copy where those from `start` to `end` are
    damaged.

    What is left of a compacted partition differs from node to node. A peer may still have a value
    whose tombstone is gone here, or have removed a tombstone whose value is still here: so
    everything from the beginning up to where either may have been compacted comes from one peer. A
    partition that is too large for that gets only the damaged range.
    """
    reach = max([end, *(min(file.clean_to, file.end) for file in files)])
    concerned = [file for file in files if file.base < reach]
    size = sum(file.bytes for file in concerned)
    if not concerned or size > REPAIRED_BYTES_MAX or concerned[0].base < log_start:
        return start, end
    return concerned[0].base, concerned[-1].end
