"""`max.compaction.lag.ms`: which data is tiered and which file is ended, depending on age."""

import attrs

from balancer.registry.commands import CreateTopic
from broker.lifecycle.compaction_lag import EVERY_NS, EVERYTHING, PEACE, CompactionLag
from broker.lifecycle.compaction_plan import Waiting, impatient_partitions
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from broker.topic_configs import CompactionRules
from paxos.ids import MS, GroupId, Now
from tests.broker.batches import START_MS, timed
from tests.broker.world import World

GROUP, UID, LIMIT_MS = GroupId(1), 7, 1_600


@attrs.define(slots=False)
class Story:
    """A partition with one batch every 100 ms, at positions 0, 1,000, 2,000 ... of the log."""

    lag_min_ms: int = 0
    since_ms: int | None = None
    boot_ns: int = 5 * EVERY_NS
    moved: list[int] = attrs.field(factory=list)
    ended: list[int] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        machine = GroupMachine(GROUP, tail=Tail(0), statistics=BrokerStatistics())
        self.state = PartitionState(UID)
        machine.partitions[UID] = self.state
        for number in range(10):
            self.append(number, 100 * number)
        self.lag = CompactionLag({GROUP: machine}, self, lambda _uid: self.since_ms)
        self.lag.assign([Waiting(GROUP, UID, CompactionRules(1, self.lag_min_ms, LIMIT_MS, 0.5))])

    def append(self, number: int, at_ms: int) -> None:
        self.state.append(memoryview(timed([at_ms])), 1_000 * number, 1)

    def tier_early(self, group: GroupId, uid: int, below: int) -> None:
        assert (group, uid) == (GROUP, UID)
        self.moved.append(below)

    def end_file(self, uid: int) -> None:
        self.ended.append(uid)

    def at(self, ms: int) -> list[int]:
        """What is tiered at this time after START_MS, in a pass later than the one before."""
        self.moved.clear()
        self.boot_ns += EVERY_NS
        self.lag.tick(Now((START_MS + ms) * MS, self.boot_ns, trusted=True))
        return list(self.moved)


def test_when_one_is_too_old_all_that_may_go_is_moved() -> None:
    assert Story().at(LIMIT_MS - 1) == []
    assert Story().at(LIMIT_MS) == [EVERYTHING]
    assert Story(lag_min_ms=1_200).at(LIMIT_MS) == [5_000], "what is younger is left"
    assert Story(lag_min_ms=LIMIT_MS).at(LIMIT_MS) == [1_000]


def test_where_both_limits_are_the_same_it_is_not_moved_one_by_one() -> None:
    story = Story(lag_min_ms=LIMIT_MS)
    assert story.at(LIMIT_MS) == [1_000]
    story.state.mark_tiered(1)
    story.boot_ns -= EVERY_NS - LIMIT_MS * MS // PEACE + 1
    assert story.at(LIMIT_MS + 100) == []
    story.boot_ns -= EVERY_NS
    assert story.at(LIMIT_MS + 100) == [], "the next pass is not before a second is over"
    story.boot_ns += EVERY_NS
    assert story.at(LIMIT_MS + 250) == [3_000]


def test_the_file_that_is_appended_to_is_ended_when_its_first_batch_is_too_old() -> None:
    story = Story(since_ms=START_MS + 500)
    story.at(LIMIT_MS + 499)
    assert story.ended == []
    story.at(LIMIT_MS + 500)
    assert story.ended == [UID]
    story.since_ms = None
    story.at(LIMIT_MS + 600)
    assert story.ended == [UID]


def test_what_has_no_time_does_not_get_old() -> None:
    story = Story(since_ms=-1)
    story.state.mark_tiered(10)
    story.append(10, -START_MS - 1)
    assert story.at(10 * LIMIT_MS) == []
    assert story.ended == []


def test_topics_with_a_limit_are_looked_at() -> None:
    world = World()
    both = {"cleanup.policy": "compact,delete", "max.compaction.lag.ms": "9"}
    configs: list[dict[str, str]] = [
        {"cleanup.policy": "compact", "max.compaction.lag.ms": "5", "min.compaction.lag.ms": "4"},
        {"cleanup.policy": "compact"},
        {"max.compaction.lag.ms": "5"},
        both,
    ]
    for number, one in enumerate(configs):
        world.run(CreateTopic(f"t{number}", bytes([number + 1]) * 16, 2, 1, one))
    topics, config = world[1].registry.topics, world[1].broker.config
    found = impatient_partitions(topics.values(), config)
    places = [*topics["t0"].partitions, *topics["t3"].partitions]
    assert [(one.group, one.uid) for one in found] == [(one.group, one.uid) for one in places]
    assert [(one.rules.lag_ms_min, one.rules.lag_ms_max) for one in found[::2]] == [(4, 5), (0, 9)]
