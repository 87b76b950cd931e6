"""The audit on Spark agrees with the checker in memory: same input, same counts."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import health
from cluster.recorder import read_history, write_history
from history.anomaly import Anomaly, Verdict
from history.checker import check
from history.jsonl import HistoryError, line_of, record_of
from history.known import Options
from history.record import Op, Record
from pipeline.audit import generate, main
from tests.cluster.scenery import FULL, GROUPS, acknowledged, judge, load, three_nodes, until
from tests.doses import ONLY_IN_FULL
from tests.history.test_mutations import MUTATIONS, good_history
from tests.spark.many_histories import (
    Counts,
    counts_of,
    marks,
    nonsense,
    plausible,
    scattered,
    together,
    whose,
)

pytestmark = pytest.mark.spark

MARKED = b'\xef\xbb\xbf{"op":"heal","process":"o","began_ns":1}\n'
"""With a byte order mark: Python accepts the line as a record, our expression does not."""
BLOCK_BYTES = 1024 * 1024
"""Small, so that a file is read in several blocks."""


@pytest.fixture
def in_blocks(spark: Any) -> Iterator[None]:
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    for name in names:
        spark.conf.set(name, BLOCK_BYTES)
    yield
    for name in names:
        spark.conf.unset(name)


def audited(spark: Any, paths: Sequence[Path], options: Options | None = None) -> Any:
    from pipeline.audit.audit import audit

    return audit(spark, list(map(str, paths)), options)


def mutants(seeds: Sequence[int]) -> Iterator[list[Record]]:
    """Good histories, and each with one record changed in each way."""
    for seed in seeds:
        yield good_history(random.Random(seed))
        for mutate in MUTATIONS:
            dice = random.Random(seed)
            history = good_history(dice)
            mutate(history, dice)
            yield history


def same(spark: Any, folder: Path, histories: list[list[Record]], seed: int) -> None:
    """Every history gets the checker's findings; and so do all of them as one."""
    dice = random.Random(seed)
    options = Options(
        idempotent=dice.random() < 0.7,
        clock_error_ns=dice.choice((0, 0, 1, 3)),
        lag_ns_max=dice.choice((None, *range(30))),
    )
    shared = marks(dice, 60)
    parts = [scattered(dice, history) for history in histories]
    every = together(parts)
    cut = len(every) // 3
    files = [folder / "b.jsonl", folder / "a.jsonl"]
    write_history(every[:cut], files[0])
    write_history([*shared, *every[cut:]], files[1])
    files[1].write_bytes(MARKED + files[1].read_bytes())
    shared.insert(0, record_of(MARKED))

    found = audited(spark, files, options)

    got: dict[int, Counts] = {number: Counter() for number in range(len(parts))}
    columns = ("topic", "process", "anomaly", "verdict")
    rows = found.findings.groupBy(*columns).count().collect()
    for topic, process, anomaly, verdict, count in rows:
        got[whose(topic, process)][anomaly, verdict] += count
    for number, part in enumerate(parts):
        expected = counts_of(check([*shared, *part], options))
        assert got[number] == expected, f"seed {seed}, history {number}, {options}"
    whole = check([*every[:cut], *shared, *every[cut:]], options)
    assert counts_of(found.report) == counts_of(whole)
    told, known = found.report.to_json(), whole.to_json()
    for name in known.keys() - {"anomalies"}:
        assert told[name] == known[name], f"seed {seed}: {name}"


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_the_verdicts_are_those_of_the_checker_in_memory(
    spark: Any, in_blocks: None, tmp_path: Path
) -> None:
    """Each of 17 mutations; nonsense, where everything collides; and clients that err."""
    for seed in range(4 if FULL else 1):
        dice = random.Random(seed)
        many = 1500 if FULL else 20
        histories = [
            *mutants(range(seed * 10, seed * 10 + (9 if FULL else 1))),
            *(nonsense(dice, dice.choice((5, 20, 60)), dice.choice((6, 50))) for _ in range(many)),
            *(plausible(dice) for _ in range(many)),
        ]
        same(spark, tmp_path, histories, seed)


def _counted(told: dict[str, Any]) -> Iterator[tuple[Anomaly, Verdict, int]]:
    for one in told["anomalies"]:
        yield Anomaly(one["name"]), Verdict(one["verdict"]), one["count"]


@pytest.mark.cluster
@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_real_clusters_history_gets_the_same_verdict(spark: Any, tmp_path: Path) -> None:
    """Recorded by clients while masters were stolen and a node died; then again with one message
    that nobody read, and one that was read at another's offset. Both audits have the same name, and
    no old results enter a verdict."""
    everything_on_1: dict[str, object] = {"all_on": 1}
    async with three_nodes(tmp_path) as cluster:
        async with load(cluster, "p", rate=500) as producer:
            await acknowledged(producer, 20)
            await health.place(cluster.spec.node(3).http, everything_on_1)
            await until(
                cluster, lambda view: view.count_by_master()[1] >= GROUPS, "node 1 has all masters"
            )
            await cluster.kill(1)
            await acknowledged(producer, 20)
            await cluster.restart(1)
            await acknowledged(producer, 20)
        await judge(cluster, producer)
    files = sorted((tmp_path / "data").glob("history-*.jsonl"))
    history = [one for path in files for one in read_history(path)]
    in_memory = check(history)
    assert in_memory.clean
    path = tmp_path / "history.jsonl"
    write_history(history, path)
    assert counts_of(audited(spark, [path]).report) == counts_of(in_memory)

    polls = [one for one in history if one.op is Op.POLL and one.value is not None]
    misread = next(one for one in polls if one.offset == 0)  # another message is at 1
    unread = next(one for one in polls if one.offset == 3)
    misread.offset += 1
    hurt = [
        one
        for one in history
        if not (one.op is Op.POLL and (one.key, one.value) == (unread.key, unread.value))
    ]
    write_history(hurt, path)
    in_memory = check(hurt)
    found = {anomaly for anomaly, verdict in counts_of(in_memory) if verdict is Verdict.BAD}
    assert found >= {Anomaly.LOST_WRITE, Anomaly.INCONSISTENT_OFFSETS}
    assert counts_of(audited(spark, [path]).report) == counts_of(in_memory)


def test_what_was_planted_is_found_where_it_is(spark: Any, tmp_path: Path) -> None:
    """In a table, which has the same history as the lines; and the written report says the same."""
    shape = generate.Shape(records=8000, partitions=3, plants=2)
    tables, lines = tmp_path / "x.parquet", tmp_path / "x.jsonl"
    written = generate.write_parquet(shape, tables)
    assert generate.write_lines(shape, lines) == written

    output = tmp_path / "out"
    options = main.parser().parse_args([str(tables), "--output", str(output), "--json"])
    assert main.run(spark, options) == main.BAD

    (told,) = (json.loads(path.read_text()) for path in (output / "report").glob("*.txt"))
    found = {one["name"]: one["count"] for one in told["anomalies"]}
    assert found == {**shape.expected(), "realtime-lag": 3}
    assert (told["records"], told["clean"]) == (written, False)
    of_lines = [record_of(line) for line in lines.read_bytes().splitlines()]
    assert counts_of(check(of_lines)) == {(n, v): count for n, v, count in _counted(told)}
    findings = spark.read.parquet(str(output / "findings"))
    for row in findings.where("line is not null").collect():
        assert row.file == str(tables)
        assert of_lines[row.line - 1].key == (row.topic, row.partition)
        if "lost-on" not in row.anomaly:  # there it is the line of the acknowledgement
            assert row.value in (None, of_lines[row.line - 1].value)
    partitions = spark.read.parquet(str(output / "partitions")).collect()
    assert sum(row.bad for row in partitions) == sum(shape.expected().values()) - 2
    assert sum(row.polled for row in partitions) == told["polled"]


STRINGS = (
    "a",
    "",
    "it's",
    'a "b"',
    "back\\slash",
    "é",
    "\U0001f600",
    "tab\t",
    "\x00",
    "\x7f",
    "{,}",
    "\u2028",
)
"""What strings of a record may hold."""
ODD = (
    b"",
    b"{",
    b"[]",
    b"7",
    b"\xff",
    b'{"op":"send"}',
    b'{"op":"heal","process":"o"}',
    b'\xef\xbb\xbf{"op":"heal","process":"o"}',
    b' {"op":"heal" , "process":\t"o"} \r',
    b'{"op":"heal","process":"\xed\xa0\x80"}',
    b'{"op":"heal","process":"\\ud800"}',
    b'{"op":"heal","process":"\\ud83d\\ude00"}',
    b'{"op":"heal","op":"fault","process":"o","value":"x"}',
    b'{"op":"fault","process":"o","value":"x","value":null}',
    b'{"op":"heal","process":"o","key":null,"value":null}',
    b'{"op":"heal","process":"o","key":["",0]}',
    b'{"op":"latest","process":"o","key":["",0],"offset":1}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":1,"offset":"1"}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":-0}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":01}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":1e3}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":9223372036854775807}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":9223372036854775808}',
    b'{"op":"latest","process":"o","key":["t",9000000000],"offset":1,}',
    b'{"op":"latest","process":"o","key":["t",9000000000],"offset":1}',
    b'{"op":"latest","process":"o","key":["t",0,1],"offset":1}',
    b'{"op":"latest","process":"o","key":["t","0"],"offset":1}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":true}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":NaN}',
    b'{"op":"latest","process":"o","key":["t",0],"offset":1,"extra":1}',
    b'{"op":"latest","process":7,"key":["t",0],"offset":1}',
    b"{'op':'heal','process':'o'}",
    b'{"op":"heal","process":"o"}{}',
    b'{"op":"heal","process":"' + b"\\u00e9" * 30_000 + b'"}',
    b'{"op":"heal","process":"' + b"x" * 1024 * 1024 + b'"}',
)


def written(dice: random.Random, number: int) -> bytes:
    """A line with a record, as different programs write it; or a damaged one."""
    (record,) = nonsense(dice, 1, 1 << 60)
    record.process, record.value = dice.choice(STRINGS), dice.choice(STRINGS)
    line = line_of(record).encode()[:-1]
    if dice.random() < 0.5:
        fields = list(json.loads(line).items())
        dice.shuffle(fields)
        blank = dice.choice(((", ", ": "), (",", ":"), (" ,\t", " :  ")))
        ascii_only = dice.random() < 0.5
        text = json.dumps(dict(fields), separators=blank, ensure_ascii=ascii_only)
        line = text.encode()
    hurt = bytearray(line)
    for _ in range(dice.choice((0, 0, 1, 2))):
        hurt[dice.randrange(len(hurt))] = dice.choice(b'"\\{}[]:,0123456789-.eE tru\x00\xff')
    return bytes(hurt) if number % 2 else line


def test_lines_are_read_as_strictly_as_by_python(spark: Any, tmp_path: Path) -> None:
    """A line that Spark accepts is the same record to Python. Python judges every other line, and
    people do not write such lines."""
    from pipeline.audit.columns import OPS, OUTCOMES
    from pipeline.audit.lines import parsed

    dice = random.Random(7)
    lines = [*ODD, *(written(dice, number) for number in range(40_000 if FULL else 1500))]
    assert not any(b"\n" in line for line in lines)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\n".join(lines))
    text = spark.read.text(str(path), lineSep="\n").withColumnRenamed("value", "line")
    rows = parsed(text).coalesce(1).collect()
    assert len(rows) == len(lines)
    strange = 0
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if row.strange is None:
            one = record_of(line)
            assert row.op == OPS.index(one.op), line
            assert row.outcome == OUTCOMES.index(one.outcome), line
            assert (row.topic, row.partition) == one.key, line
            for name in ("process", "value", "offset", "began_ns", "ended_ns"):
                assert row[name] == getattr(one, name), line
            continue
        assert line.startswith(bytes(row.strange)), line
        strange += 1
        assert number < len(ODD) or (number - len(ODD)) % 2, f"a record, and strange: {line!r}"
    assert strange > len(lines) / 10


def test_what_is_no_history_is_refused_by_its_line(
    spark: Any, in_blocks: None, tmp_path: Path
) -> None:
    """With the message of the checker in memory, which reads one file after the other."""
    good = [line_of(one).encode() for one in good_history(random.Random(1))]
    bad = b'{"op":"poll","process":"p","key":["t",0]}\n'
    files = [tmp_path / name for name in ("b.jsonl", "a.jsonl")]
    files[0].write_bytes(b"".join([MARKED, *good * 60]))
    files[1].write_bytes(b"".join([*good[:30], MARKED, bad, *good[30:], bad]) * 50)
    with pytest.raises(HistoryError) as in_memory:
        list(read_history(files[1]))
    assert "a.jsonl:32: not a record: poll needs an offset" in str(in_memory.value)
    with pytest.raises(HistoryError) as on_spark:
        audited(spark, files)
    assert str(on_spark.value) == str(in_memory.value)


def test_what_cannot_be_read_is_told(spark: Any, tmp_path: Path) -> None:
    good, empty = tmp_path / "good.jsonl", tmp_path / "empty.jsonl"
    good.write_bytes(line_of(good_history(random.Random(1))[0]).encode())
    empty.touch()
    for files, problem in (
        ([tmp_path / "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        ([good, empty, good], "good.jsonl is given twice"),
        ([empty], "nothing to judge in"),
    ):
        with pytest.raises(HistoryError, match=problem):
            audited(spark, files)
