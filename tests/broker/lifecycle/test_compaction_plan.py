"""Which partition is compacted next, how far, and into which files."""

from broker.lifecycle.compaction_plan import (
    REPAIRED_BYTES_MAX,
    Round,
    dirtiest,
    merges,
    round_of,
    to_repair,
)
from broker.topic_configs import CompactionRules, compaction_rules
from storage.cold.format import ColdFacts
from tests.broker.world import World

NOW_MS = 1_000_000
NEVER = 1 << 62


def facts(
    base: int,
    end: int,
    size: int = 100,
    *,
    first_timestamp_ms: int = 0,
    max_timestamp_ms: int = 0,
    clean_to: int = 0,
    sealed: bool = True,
) -> ColdFacts:
    return ColdFacts(base, end, max_timestamp_ms, size, first_timestamp_ms, clean_to, sealed)


def rules(lag_min: int = 0, lag_max: int = NEVER, ratio: float = 0.5) -> CompactionRules:
    return CompactionRules(10, lag_min, lag_max, ratio)


def extent(files: list[ColdFacts], given: CompactionRules) -> tuple[int, int, float, bool] | None:
    found = round_of(7, files, given, NOW_MS)
    return found and (found.clean_to, found.end, found.dirty_ratio, found.due)


def test_the_last_file_is_left_alone_until_it_is_full() -> None:
    assert extent([], rules()) is None
    assert extent([facts(5, 9, sealed=False)], rules()) is None
    assert extent([facts(5, 9), facts(9, 12, sealed=False)], rules()) == (5, 9, 1.0, True)


def test_enough_of_it_must_be_dirty() -> None:
    clean, dirty = [facts(0, 9, 300, clean_to=9)], [facts(9, 12), facts(12, 20)]
    assert extent(clean, rules()) is None
    assert extent(clean + dirty, rules(ratio=0.41)) == (9, 20, 0.4, False)
    assert extent(clean + dirty, rules(ratio=0.4)) == (9, 20, 0.4, True)
    assert extent(clean + dirty, rules(ratio=0.0)) == (9, 20, 0.4, True)


def test_old_records_do_not_wait_for_others() -> None:
    files = [facts(0, 9, 900, clean_to=9), facts(9, 12, first_timestamp_ms=NOW_MS - 50)]
    assert extent(files, rules(lag_max=50)) == (9, 12, 0.1, False)
    assert extent(files, rules(lag_max=49)) == (9, 12, 0.1, True)


def test_young_records_wait_and_all_that_is_behind_them() -> None:
    files = [facts(0, 3), facts(3, 6, max_timestamp_ms=NOW_MS - 10), facts(6, 9)]
    assert extent(files, rules(lag_min=10)) == (0, 9, 1.0, True)
    assert extent(files, rules(lag_min=11)) == (0, 3, 1.0, True)
    assert extent(files[1:], rules(lag_min=11)) is None


def test_a_round_goes_on_where_another_one_ended_or_died() -> None:
    """Within a file if its memory for keys was full, or between two. Nothing after the first dirty
    file counts as clean."""
    assert extent([facts(0, 9, clean_to=4), facts(9, 12)], rules()) == (4, 12, 1.0, True)
    died = [facts(0, 9, clean_to=9), facts(9, 12), facts(12, 15, clean_to=15)]
    assert extent(died, rules()) == (9, 15, 2 / 3, True)


def test_what_is_overdue_goes_first_then_the_dirtiest() -> None:
    def one(uid: int, dirty: int, *, due: bool = True, overdue: bool = False) -> Round:
        return Round(uid, 0, 0, 9, dirty, 100, due, overdue)

    assert dirtiest([]) is None
    assert dirtiest([one(1, 90, due=False)]) is None
    assert dirtiest([one(1, 50), one(2, 60), one(3, 60)]) == one(2, 60)
    assert dirtiest([one(1, 50), one(2, 5, overdue=True)]) == one(2, 5, overdue=True)


def test_small_neighbours_become_one_file() -> None:
    files = [facts(at, at + 1, size) for at, size in enumerate([40, 40, 30, 200, 10, 10, 10])]
    files.append(facts(7, 8, sealed=False))

    def bases(until: int) -> list[list[int]]:
        return [[one.base for one in run] for run in merges(files, until, 100)]

    assert bases(99) == [[0, 1], [2], [3], [4, 5, 6]]
    assert bases(3) == [[0, 1], [2]]
    assert bases(0) == []


def test_rules_come_from_the_topics_settings() -> None:
    config = World()[1].broker.config
    assert compaction_rules({}, config, 3) == CompactionRules(86_400_000, 0, 2**63 - 1, 0.5)
    own = {
        "delete.retention.ms": "1",
        "min.compaction.lag.ms": "2",
        "max.compaction.lag.ms": "3",
        "min.cleanable.dirty.ratio": ".25",
    }
    assert compaction_rules(own, config, 3) == CompactionRules(1, 2, 3, 0.25)


def test_a_damaged_partition_comes_from_one_peer_as_far_as_it_is_compacted() -> None:
    files = [facts(0, 9, clean_to=9), facts(9, 12, clean_to=11), facts(12, 20), facts(20, 25)]
    assert to_repair(files, 0, 2, 4) == (0, 12)
    assert to_repair(files, 0, 13, 15) == (0, 20)
    assert to_repair(files, 3, 2, 4) == (2, 4), "a peer has nothing below the log start"
    assert to_repair([facts(0, 9, REPAIRED_BYTES_MAX + 1)], 0, 2, 4) == (2, 4)
    assert to_repair([], 0, 2, 4) == (2, 4)
