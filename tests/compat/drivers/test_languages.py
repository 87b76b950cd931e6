"""How programs in other languages are run and judged, with small Python programs in their place."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.compat import by_language, cells
from tests.compat.cells import Verdict, reason_for
from tests.compat.languages import Faults, Ground, Missing, Program, of, run, started, values
from tests.compat.model import Lacking
from tests.compat.together import side_by_side

TELLS = 'print(\'{"event": "%s", "value": "%s"}\')'


class NoFaults:
    def move(self) -> None: ...
    def kill(self) -> None: ...
    def roll(self) -> None: ...
    def calm(self) -> None: ...


def ground(tmp_path: Path) -> Ground:
    return Ground("localhost:1", "t", NoFaults(), tmp_path)


def program(*lines: str) -> Program:
    return Program("Test", "test 1", (sys.executable, "-c", "\n".join(("import sys", *lines))))


def test_what_it_tells(tmp_path: Path) -> None:
    one = program(
        "print('a log line')", TELLS % ("read", "7"), "print('{no json')", TELLS % ("done", "")
    )
    told = run(one, ground(tmp_path), "consume")
    assert [event["event"] for event in told] == ["read", "done"]
    assert values(told, "read") == ["7"]


def test_what_it_is_given(tmp_path: Path) -> None:
    one = program("import json", "print(json.dumps({'event': 'done', 'words': sys.argv[1:]}))")
    (done,) = run(one, ground(tmp_path), "produce", count=5, acks="all")
    assert done["words"] == [
        *("--do", "produce", "--bootstrap", "localhost:1", "--topic", "t"),
        *("--count", "5", "--acks", "all"),
    ]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((TELLS % ("read", "7"),), "not done"),
        ((TELLS % ("done", ""), "sys.exit(3)"), "ended with 3"),
        (("raise ValueError('why it failed')",), "why it failed"),
        ((TELLS % ("error", "7"), TELLS % ("done", "")), "error"),
        ((TELLS % ("done", ""), TELLS % ("read", "7")), "not done"),
    ],
)
def test_what_does_not_end_well_fails(tmp_path: Path, lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        run(program(*lines), ground(tmp_path), "consume")


def test_what_still_runs_is_ended(tmp_path: Path) -> None:
    with started(program("import time", "time.sleep(600)"), ground(tmp_path), "group") as running:
        assert running.process.poll() is None
    assert running.process.poll() is not None


def test_events_can_be_seen_while_it_runs(tmp_path: Path) -> None:
    lines = ("import time", TELLS % ("read", "1"), "sys.stdout.flush()", "time.sleep(600)")
    with started(program(*lines), ground(tmp_path), "group") as running:
        while not running.events():
            assert running.process.poll() is None
        assert of(running.events(), "read")


def fails(_program: Program, _ground: Ground) -> None:
    raise AssertionError("lost")


def lacks(_program: Program, _ground: Ground) -> None:
    raise Lacking


def works(_program: Program, _ground: Ground) -> None: ...


def test_a_table_by_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"a": works, "b": fails, "c": lacks}
    first = Program("Test", "one 1", (), own=own)
    second = Program("Test", "two 2", (), own={"d": works})

    def missing(_scratch: Path) -> list[Program]:
        raise Missing("no such compiler here")

    languages = {"Test": lambda _: [first, second], "Other": missing}
    monkeypatch.setattr(by_language, "LANGUAGES", languages)
    site = by_language.Site("localhost:1", "", NoFaults(), tmp_path)
    written: list[str] = []
    both = by_language.run(site, ["Test", "Other"], "", "", lambda name, _: written.append(name))
    assert list(both) == ["Test"], "the section of what is missing stays as it is"
    assert written == ["Test"] * 5, "after each row, and at the end"
    told = both["Test"]
    assert by_language.failures(told) == 1
    text = cells.table(told, by_language.in_order(told))
    assert text.splitlines() == [
        "| | one 1 | two 2 |",
        "|---|---|---|",
        f"| a | {Verdict.OK} | - |",
        f"| b | {Verdict.FAILED} | - |",
        "| c | - | - |",
        "| d | - | yes |",
        *("", "Why not:", "", "- one 1: b: AssertionError: lost"),
    ]
    assert cells.table(cells.read(text), by_language.in_order(told)) == text


def test_rows_that_were_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are "not yet" until a run reaches them, and what earlier runs found stays."""
    first = Program("Test", "one 1", (), own={"a": works, "b": fails})
    second = Program("Test", "two 2", (), own={"a": works})
    monkeypatch.setattr(by_language, "LANGUAGES", {"Test": lambda _: [first, second]})
    site = by_language.Site("localhost:1", "", NoFaults(), tmp_path)
    now = by_language.run(site, ["Test"], "one", "a", lambda *_: None)["Test"]
    assert {row: cell.verdict for row, cell in now["one 1"].items()} == {
        "a": Verdict.OK,
        "b": Verdict.NOT_YET,
    }
    assert now["two 2"]["a"].verdict is Verdict.NOT_YET
    then = by_language.run(site, ["Test"], "", "b", lambda *_: None)["Test"]
    both = cells.merged(now, then)
    assert both["one 1"]["a"].verdict is Verdict.OK
    assert both["one 1"]["b"].verdict is Verdict.FAILED
    assert both["two 2"]["a"].verdict is Verdict.NOT_YET


def test_a_column_of_another_version_goes() -> None:
    old, new = {"a": cells.Cell(Verdict.OK)}, {"a": cells.NOT_YET}
    before = {"sarama 1.0": old, "franz 1.2 (Go 1)": old}
    both = cells.merged(before, {"sarama 1.1": new})
    assert both == {"franz 1.2 (Go 1)": old, "sarama 1.1": new}


def test_a_page_keeps_its_other_sections(tmp_path: Path) -> None:
    report = tmp_path / "page.md"
    report.write_text("# old\n\n## A\n\none\n\n## B\n\ntwo\n")
    cells.write({"B": "three\n", "C": "four\n"}, report)
    assert report.read_text() == f"{cells.HEAD}\n## A\n\none\n\n## B\n\nthree\n\n## C\n\nfour\n"
    assert cells.section("C", report) == "four\n"


class Counted(NoFaults):
    def __init__(self) -> None:
        self.moves = 0

    def move(self) -> None:
        self.moves += 1


@pytest.mark.parametrize("first_ends_after", [0, 1, 3])
def test_clients_side_by_side_meet_each_fault_once(first_ends_after: int) -> None:
    """One that ends early, since it has failed, keeps nobody waiting."""
    faults = Counted()

    def row(moves: int, given: Faults) -> int:
        for _ in range(moves):
            given.move()
        return faults.moves

    rows = {"a": partial(row, first_ends_after), "b": partial(row, 3), "c": partial(row, 3)}
    told = side_by_side(faults, rows)
    assert faults.moves == 3
    assert (told["b"], told["c"]) == (3, 3)


def test_a_fault_that_fails_fails_in_all_of_them() -> None:
    class Broken(NoFaults):
        def kill(self) -> None:
            raise TimeoutError

    def row(given: Faults) -> str:
        with pytest.raises(TimeoutError):
            given.kill()
        return "told"

    assert side_by_side(Broken(), {"a": row, "b": row}) == {"a": "told", "b": "told"}


def test_a_failure_that_is_understood_has_its_reason() -> None:
    client, row = "@platformatic/kafka 1.35.0", "a rolling restart"
    told = reason_for(client, row, "AssertionError: leaveGroup failed 4 times")
    assert "asks for the coordinator once" in told
    assert reason_for(client, row, "12 lost") == "12 lost"
    assert reason_for(client, "moves", "leaveGroup failed") == "leaveGroup failed"
