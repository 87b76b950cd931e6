"""The audit without Spark: its options, large histories made for it, tables of times and of
lines."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from cli import history as history_cli
from cluster.recorder import read_history
from history import jsonl
from history.anomaly import Anomaly, Verdict
from history.checker import check
from history.record import NO_KEY, Op, Record
from history.trouble import Trouble
from pipeline.audit import generate, main
from pipeline.audit.generate import SHOWS, Plant, Shape


def found_in_memory(path: Path) -> Counter[Anomaly]:
    """Without the lag, which every good history also has."""
    report = check(read_history(path))
    found = Counter(report.with_verdict(Verdict.BAD))
    found.update(report.with_verdict(Verdict.REPORT))
    del found[Anomaly.REALTIME_LAG]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_checker_finds_what_is_planted_and_nothing_else(tmp_path: Path, seed: int) -> None:
    shape = Shape(records=12_000, partitions=5, producers=3, readers=2, plants=4, seed=seed)
    path = tmp_path / "h.jsonl"
    assert generate.write_lines(shape, path) >= shape.records
    assert found_in_memory(path) == shape.expected()
    assert shape.expected()[Anomaly.DUPLICATE] == 4


def test_without_plants_a_history_is_good(tmp_path: Path) -> None:
    shape = Shape(records=100, partitions=1, plants=0)
    generate.write_lines(shape, tmp_path / "h.jsonl")
    assert not found_in_memory(tmp_path / "h.jsonl")


@pytest.mark.parametrize("plant", Plant)
def test_every_kind_of_plant_shows_what_it_says(plant: Plant) -> None:
    shape = Shape(records=1000, partitions=1, plants=0)
    place = generate.Cell(0, 2)
    records = [one for cell in generate.history(shape, {place: plant}) for one in cell]
    report = check(records)
    found = {**report.with_verdict(Verdict.BAD), **report.with_verdict(Verdict.REPORT)}
    of_each_partition = {Anomaly.REALTIME_LAG, Anomaly.LOST_MIDDLE}
    assert set(found) - of_each_partition == set(SHOWS[plant])


def test_lines_are_written_as_by_everybody_else() -> None:
    shape = Shape(records=1500, partitions=1, plants=1)
    for cell in generate.history(shape, shape.planted()):
        for record in cell:
            assert generate.line_of(record) == jsonl.line_of(record)


def test_what_must_be_found_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    assert (
        generate.main([str(path), "--records", "3000", "--partitions", "2", "--plants", "2"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["records"] == len(path.read_bytes().splitlines())
    assert found_in_memory(path) == told["expected"]
    with pytest.raises(ValueError, match="70 plants need as many cells, but there are 10"):
        Shape(records=2000, partitions=1).planted()


def test_it_promises_what_the_checker_in_memory_promises() -> None:
    """The same options with the same names and the same defaults."""
    words = ["--not-idempotent", "--clock-error-ms", "1.5", "--lag-ms-max", "7", "--json"]
    given = main.parser().parse_args(["x", *words])
    promised = main.promised(given)
    assert promised == history_cli.promised(given)
    assert (promised.idempotent, promised.clock_error_ns) == (False, 1_500_000)
    assert promised.lag_ns_max == 7_000_000
    plain = main.promised(main.parser().parse_args(["x"]))
    assert plain == type(plain)()
    for wrong in ("-1", "nan", "inf"):
        with pytest.raises(SystemExit):
            main.parser().parse_args(["x", "--lag-ms-max", wrong])


@pytest.mark.parametrize("seed", range(20))
def test_slices_of_time_hold_every_time_once(seed: int) -> None:
    pytest.importorskip("pyspark")
    from pipeline.audit.healthy_periods import slices

    dice = random.Random(seed)
    times = dice.choices(range(-30, 60), k=dice.randrange(1, 12))
    marks = [
        Record(dice.choice((Op.FAULT, Op.HEAL)), "o", NO_KEY, "x", began_ns=time) for time in times
    ]
    trouble = Trouble.of(marks)
    stretches = list(trouble.stretches())
    if len(stretches) == 1:
        return
    first_ns, last_ns = stretches[1].begin_ns or 0, stretches[-1].begin_ns or 0
    slice_ns = dice.randrange(1, 20)
    table = list(slices(stretches, first_ns, last_ns, slice_ns))
    for time in range(-40, 80):
        number = (min(max(time, first_ns), last_ns) - first_ns) // slice_ns
        (healed_ns,) = (
            healed for its, begin, end, healed in table if its == number and begin <= time < end
        )
        assert (healed_ns is None) == trouble.at(time)
        assert healed_ns is None or healed_ns == trouble.healed_ns(time)


def test_blocks_of_files_give_lines_their_numbers() -> None:
    """One task reads two blocks of two files. The numbers of the first file begin after those of
    the second, because it was given later."""
    pytest.importorskip("pyspark")
    from pipeline.audit.source import TASK_BITS, File, _Block, _places, place_of

    task = 1 << TASK_BITS
    blocks = [
        _Block("file:/a%20b", 0, task + 4, 3, 0),
        _Block("file:/a%20b", 100, 7 * task, 2, 0),
        _Block("file:/c", 0, task, 4, 0),
    ]
    files = [File("file:///c"), File("file:///a%20b")]
    places = list(_places(blocks, {file.path: at for at, file in enumerate(files)}))

    def seen(number: int) -> tuple[str, int]:
        (base,) = (base for _, first, after, base in places if first <= number < after)
        file, line = place_of(base + number, files)
        return file.path, line

    assert [one[0] for one in places] == [1, 7, 1]
    assert [seen(task + number) for number in (0, 3)] == [("/c", 1), ("/c", 4)]
    assert [seen(task + number) for number in (4, 6)] == [("/a b", 1), ("/a b", 3)]
    assert [seen(7 * task + number) for number in (0, 1)] == [("/a b", 4), ("/a b", 5)]
