"""History files, and the command that judges them."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli import main as cli
from cluster.recorder import Recorder, read_history, write_history
from history.record import Key, Op, Outcome, Record

KEY = Key("t", 0)
GOOD = [
    Record(Op.SEND, "p", KEY, "a", 0, Outcome.OK, 1, 2),
    Record(Op.ASSIGN, "r", KEY, None, 0),
    Record(Op.POLL, "r", KEY, "a", 0, Outcome.OK, 3, 4),
    Record(Op.DRAINED, "r", KEY, None, 1, Outcome.OK, 3, 4),
]
LOST = Record(Op.SEND, "p", KEY, "b", 1, Outcome.OK, 3, 4)


def test_a_history_survives_the_file(tmp_path: Path) -> None:
    write_history(GOOD, tmp_path / "h.jsonl")
    assert list(read_history(tmp_path / "h.jsonl")) == GOOD


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    with Recorder(tmp_path / "h.jsonl") as recorder:

        def write(number: int) -> None:
            for place in range(200):
                record = Record(Op.SEND, f"p{number}", KEY, f"v{number}-{place}")
                recorder.began(record)
                recorder.ended([record])

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = list(read_history(recorder.path))
    assert len(found) == 4 * 200 * 2
    assert sum(one.outcome == Outcome.INVOKE for one in found) == 4 * 200


def test_what_was_written_survives_the_death_of_the_writer(tmp_path: Path) -> None:
    """The process ends at once: nothing is closed, and Python flushes nothing."""
    path = tmp_path / "h.jsonl"
    code = (
        "import os, pathlib, sys\n"
        "from cluster.recorder import Recorder\n"
        "from history.record import Key, Op, Record\n"
        "recorder = Recorder(pathlib.Path(sys.argv[1]))\n"
        "recorder.began(Record(Op.SEND, 'p', Key('t', 0), 'a', began_ns=7))\n"
        "recorder.fault('kill')\n"
        "os.abort()\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(path)], check=False, capture_output=True)
    assert died.returncode < 0
    begun, fault = read_history(path)
    assert (begun.value, begun.outcome) == ("a", Outcome.INVOKE)
    assert (fault.op, fault.value) == (Op.FAULT, "kill")


def test_a_clean_history_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_history(GOOD[:1], tmp_path / "a.jsonl")
    write_history(GOOD[1:], tmp_path / "b.jsonl")
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert cli.run(["history", "check", *files]) == 0
    assert "1 acknowledged, 0 unknown" in (told := capsys.readouterr().out)
    assert told.rstrip().endswith("clean")


def test_a_bad_history_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    write_history([*GOOD, LOST], path)
    assert cli.run(["history", "check", str(path)]) == 1
    assert "1 x unseen: acknowledged, and not read by the end" in capsys.readouterr().out
    assert cli.run(["history", "check", str(path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["clean"]
    assert [one["name"] for one in report["anomalies"]] == ["unseen", "lost-postfix"]
    assert report["anomalies"][0]["examples"] == [
        {"key": ["t", 0], "detail": "b of p, acknowledged at offset 1"}
    ]


def test_options_of_the_check_reach_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    again = Record(Op.POLL, "s", KEY, "a", 1, Outcome.OK, 9_000_000, 9_000_001)
    stale = Record(Op.POLL, "q", KEY, None, 0, Outcome.OK, 5_000_002, 5_000_003)
    for record, options, code in (
        (again, [], 1),
        (again, ["--not-idempotent"], 0),
        (stale, [], 0),
        (stale, ["--lag-ms-max", "6"], 0),
        (stale, ["--lag-ms-max", "5"], 0),
        (stale, ["--lag-ms-max", "4.9"], 1),
    ):
        write_history([*GOOD, record], path)
        assert cli.run(["history", "check", str(path), *options]) == code, capsys.readouterr().out
    write_history([*GOOD, Record(Op.LATEST, "w", KEY, None, 0, Outcome.OK, 5, 6)], path)
    assert cli.run(["history", "check", str(path)]) == 1
    assert cli.run(["history", "check", str(path), "--clock-error-ms", "0.001"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to judge in "),
        ('{"op":"heal","process":"o"}\n', "nothing to judge in "),
        ('{"op":"send"}\n', "h.jsonl:1: not a record: expected an object with op and process"),
        ("{" + "x" * 2_000_000, "h.jsonl:1: not a record: longer than 1,048,576 bytes"),
    ],
)
def test_what_cannot_be_judged_is_an_error(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty file is not a clean history: its writer has failed."""
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    assert cli.run(["history", "check", str(path)]) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["history", "check", str(tmp_path / "none.jsonl")]) == 1
    assert "No such file" in capsys.readouterr().err
