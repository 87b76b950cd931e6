"""What is made of what a client program says, and of what is missing on a machine."""

from pathlib import Path

import pytest

from benchmarks.handoff import programs
from benchmarks.handoff.by_client import Seen, Told, judged
from benchmarks.handoff.programs import PROGRAMS, SOURCES, Missing
from benchmarks.handoff.report import CLIENTS_BEGIN, CLIENTS_END, by_client

PAGE = Path(__file__).parents[3] / "docs" / "handoff.md"


def seen(told: Told, stored: list[list[int]]) -> Seen:
    return judged(
        "a client",
        told,
        stored,
        idempotent=False,
        rate=100,
        moves=3,
        hung=told.sent is None,
        refusals=0,
        forwarded=5,
    )


def told(*lines: str) -> Told:
    one = Told()
    for line in lines:
        one.heard(line)
    return one


def test_what_was_acknowledged_is_compared_with_the_log_and_with_what_was_read() -> None:
    acks = [f"a {1_000 + 10 * n} {n}" for n in range(5)]
    reads = ["r 2000 0", "r 2001 1", "r 2051 1", "r 2052 3"]
    one = seen(told("ready", *acks, *reads, "end 5"), [[0, 2, 1], [3, 3]])
    assert (one.lost, one.twice, one.disordered) == (1, 1, 1)
    assert (one.unread, one.read_twice) == (2, 1)
    assert (one.silence_ms["max"], one.read_silence_ms["max"]) == (10, 50)
    assert not one.hung
    assert one.missed_bars() == ["1 lost", "1 twice", "2 unread"]


def test_errors_are_those_the_application_is_given() -> None:
    one = seen(told("ready", "a 1 0", "r 1 0", "w only logged", "e it failed", "end 1"), [[0]])
    assert (one.errors, one.warnings) == (("it failed",), ("only logged",))
    assert one.missed_bars() == ["1 errors"]
    assert one.summary()["error_examples"] == ["it failed"]


def test_a_line_that_no_program_of_ours_says_is_an_error() -> None:
    """A stack trace, for example."""
    assert told("Traceback (most recent call last):").errors == ["(most recent call last):"]


def test_who_does_not_come_to_an_end_is_hung() -> None:
    assert seen(told("ready", "a 1 0", "r 1 0"), [[0]]).missed_bars() == ["1 hung"]


def test_a_language_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.shutil, "which", lambda _name: None)
    for name in ("kafkajs", "platformatic", "java", "franz-go"):
        with pytest.raises(Missing, match="is not installed"):
            PROGRAMS[name]()


def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="failed: no such registry"):
        programs._run(["sh", "-c", "echo no such registry >&2; exit 1"], tmp_path)
    with pytest.raises(Missing, match="no-such-program"):
        programs._run(["no-such-program"], tmp_path)


def test_what_is_pinned_names_no_registry() -> None:
    lock = (SOURCES / "javascript" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert '"kafkajs": "2.2.4"' in lock


def test_the_table_has_a_row_for_each_client_and_a_place_in_the_page() -> None:
    context = {
        "machine": {"cpu": "a CPU", "cores": 2, "load_average": [0.1]},
        "began": "2026-11-27T00:00:00",
        "commit": "0123456789abcdef",
        "uncommitted_changes": False,
        "niceness": 0,
    }
    one = seen(told("ready", "a 1 0", "r 1 0", "end 1"), [[0]])
    table = by_client(context, [one.summary()])
    assert (
        "| a client | plain | 3 | 1 | 0 | 0 | 0 | 0 | no | 0 / 0 | 0 | 0 | 0 / 0 | 0 | 5 |" in table
    )
    page = PAGE.read_text(encoding="utf-8")
    assert page.index(CLIENTS_BEGIN) < page.index(CLIENTS_END)
