"""From a checkpoint's offsets to the tasks of a micro-batch, and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_evenkeel.client.cluster import Place
from pyspark_evenkeel.errors import ConfigurationError
from pyspark_evenkeel.offsets import (
    PLAN,
    Cut,
    Offsets,
    Range,
    apportioned,
    flat,
    from_json,
    limited,
    nested,
    ranges_between,
    tasks_between,
    tasks_of,
    to_json,
)

A, B, C = Place("a", 0), Place("a", 10), Place("b", 2)
PLACES = st.builds(Place, st.sampled_from(["a", "b-2", "plan"]), st.integers(0, 12))
POSITIONS = st.dictionaries(PLACES, st.integers(0, 1 << 62), max_size=8)
BOUND = st.none() | st.integers(1, 50)
CUTS = st.builds(Cut, BOUND, BOUND, BOUND)
RANGES = st.dictionaries(
    PLACES, st.tuples(st.integers(0, 1000), st.integers(1, 300)), max_size=8
).map(lambda found: [Range(place, *found[place]) for place in sorted(found)])


def sized(ranges: list[Range]) -> list[Range]:
    return [Range(place, start, start + size) for place, start, size in ranges]


IDS = st.dictionaries(st.sampled_from("abc"), st.binary(min_size=16, max_size=16))


@given(st.builds(Offsets, POSITIONS, CUTS, POSITIONS, st.booleans(), IDS))
def test_a_checkpoint_gives_back_what_it_was_given(offsets: Offsets) -> None:
    """Also as text: Spark compares it to find out whether there is anything new."""
    text = json.dumps(to_json(offsets))
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_offsets_look_like_those_of_spark_s_kafka_source() -> None:
    """In one order, whatever order they were found in."""
    assert (
        json.dumps(to_json(Offsets({C: 3, B: 2, A: 1})))
        == '{"a": {"0": 1, "10": 2}, "b": {"2": 3}}'
    )
    assert flat(nested({A: 1, B: 2}), "it") == {A: 1, B: 2}


def test_what_is_not_of_the_plan_is_not_in_the_text() -> None:
    assert PLAN not in to_json(Offsets({A: 1}))
    assert to_json(Offsets({A: 1}, Cut(tasks_max=3)))[PLAN] == {"maxPartitions": 3}


@pytest.mark.parametrize(
    "document", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}]
)
def test_offsets_of_another_source_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint's offset cannot be read"):
        from_json(document)


def test_checkpoints_of_old_have_no_topic_ids() -> None:
    assert from_json({"a": {"0": 1}, PLAN: {"maxPartitions": 3}}).topic_ids == {}


@pytest.mark.parametrize("ids", [7, {"a": 7}, {"a": "no"}, {"a": "ff"}, {"a": None}])
def test_topic_ids_that_are_none_are_refused(ids: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint's offset cannot be read"):
        from_json({"a": {"0": 1}, PLAN: {"topicIds": ids}})


@given(st.integers(1, 2000), st.lists(st.integers(1, 300), max_size=12))
def test_shares_add_up_and_nobody_starves(total: int, weights: list[int]) -> None:
    shares = apportioned(total, weights)
    assert sum(shares) == min(total, sum(weights))
    assert all(0 <= share <= weight for share, weight in zip(shares, weights, strict=True))
    if total >= len(weights):
        assert all(shares)
        spare, wanted = total - len(weights), max(1, sum(weights) - len(weights))
        for share, weight in zip(shares, weights, strict=True):
            exact = 1 + min(1.0, spare / wanted) * (weight - 1)
            assert abs(share - exact) <= 1
    else:
        left_out = [weight for share, weight in zip(shares, weights, strict=True) if not share]
        chosen = [weight for share, weight in zip(shares, weights, strict=True) if share]
        assert min(chosen) >= max(left_out), "the longest queues go first, so each gets its turn"


@given(RANGES, st.integers(1, 500))
def test_a_limit_is_kept_and_never_goes_back(found: list[Range], most: int) -> None:
    ranges = sized(found)
    reached = limited(ranges, most)
    assert all(one.start <= reached[one.place] <= one.end for one in ranges)
    total = sum(reached[one.place] - one.start for one in ranges)
    assert total == min(most, sum(one.size for one in ranges))


def test_a_backlog_is_read_off_batch_by_batch_to_its_end() -> None:
    position, end = {A: 0, B: 0, C: 5}, {A: 1000, B: 3, C: 5}
    batches = 0
    while ranges := ranges_between(position, end):
        position |= limited(ranges, 100)
        batches += 1
    assert position == end
    assert batches == 11


def test_pitfall_1_an_end_below_the_start_has_no_rows() -> None:
    assert ranges_between({A: 27_000, B: 5}, {A: 0, B: 5}) == []


def test_a_new_partition_begins_at_0() -> None:
    assert ranges_between({A: 7}, {A: 9, B: 4}) == [Range(A, 7, 9), Range(B, 0, 4)]


@given(RANGES, CUTS)
def test_tasks_cover_every_offset_once(found: list[Range], cut: Cut) -> None:
    ranges = sized(found)
    tasks = tasks_of(ranges, cut)
    pieces = sorted(piece for task in tasks for piece in task)
    glued: list[Range] = []
    for piece in pieces:
        assert piece.size > 0
        if glued and glued[-1].place == piece.place and glued[-1].end == piece.start:
            glued[-1] = glued[-1]._replace(end=piece.end)
        else:
            glued.append(piece)
    assert glued == ranges
    if cut.records_max is not None:
        assert all(piece.size <= cut.records_max for piece in pieces)
    if cut.tasks_max is not None:
        assert len(tasks) <= cut.tasks_max
    elif cut.min_tasks is not None and ranges:
        assert len(tasks) >= min(cut.min_tasks, sum(one.size for one in ranges))


def test_one_task_for_a_range_unless_told_otherwise() -> None:
    ranges = [Range(A, 0, 90), Range(B, 0, 10), Range(C, 5, 6)]
    assert tasks_of(ranges, Cut()) == [(one,) for one in ranges]
    by_size = tasks_of(ranges, Cut(records_max=40))
    assert [task[0].size for task in by_size] == [30, 30, 30, 10, 1]
    more = tasks_of(ranges, Cut(min_tasks=8))
    assert len(more) == 8
    assert [task[0].place for task in more].count(A) == 6
    packed = tasks_of(ranges, Cut(tasks_max=2))
    assert packed == [(ranges[0],), (ranges[1], ranges[2])]


def test_a_replayed_micro_batch_has_its_own_tasks_whatever_the_options_are_now() -> None:
    """The sink identifies writes by the number of the task that made them."""
    end = Offsets({A: 100, B: 100}, Cut(records_max=50))
    before = tasks_between(Offsets({A: 0, B: 0}, Cut(tasks_max=1)), end)
    assert len(before) == 4
    from_checkpoint = from_json(json.loads(json.dumps(to_json(end))))
    assert tasks_between(Offsets({A: 0, B: 0}), from_checkpoint) == before


def test_pitfall_1_the_first_end_has_its_own_start() -> None:
    """A process that died before batch 0 was committed asks for `latest` again, and gets more."""
    end = Offsets({A: 150, B: 9}, begins={A: 100, B: 0})
    replayed = tasks_between(Offsets({A: 170, B: 9}, initial=True), end)
    assert replayed == [(Range(A, 100, 150),), (Range(B, 0, 9),)]


def test_pitfall_1_an_end_that_is_an_initial_offset_has_no_tasks() -> None:
    """Nothing was there yet; asked again, `latest` may be anywhere."""
    assert tasks_between(Offsets({A: 5}, initial=True), Offsets({A: 9}, initial=True)) == []
