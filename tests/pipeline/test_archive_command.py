"""`python -m pipeline archive` as typed: its options, and its failures.

tests/spark has its work with a cluster; these tests leave Spark out.
"""

from typing import Any

import pytest

from pipeline.archive import main as command
from pipeline.archive.logic import ArchiveError

LEAST = ["--bootstrap", "a:1", "--to", "kept/"]


def options_of(*words: str) -> dict[str, str]:
    return command.source_options(command.parser().parse_args([*LEAST, *words]))


def test_words_become_options_of_the_source() -> None:
    usual = options_of("--topics", "a,b")
    assert usual == {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    other = options_of("--topic-pattern", "x.*", "--rows-max", "7", "--allow-data-loss")
    assert other.keys() == usual.keys() - {"subscribe"} | {"subscribePattern"}
    assert other["subscribePattern"] == "x.*"
    assert (other["maxOffsetsPerTrigger"], other["failOnDataLoss"]) == ("7", "false")


@pytest.mark.parametrize(
    "words", [[], ["--topics", "a", "--topic-pattern", "b"], ["--topics", "a", "--rows-max", "x"]]
)
def test_words_that_make_no_sense_are_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        command.main([*LEAST, *words])
    assert end.value.code == 2
    assert "usage: pipeline archive" in capsys.readouterr().err


class Job:
    """Records what the command has done, in place of what needs Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails_at: str = "") -> None:
        self.done: list[object] = []
        self.fails_at = fails_at
        monkeypatch.setattr(command, "start", lambda name, options: self)
        monkeypatch.setattr(command, "Archive", self.archive)
        monkeypatch.setattr(command.Taking, "into", lambda archive, tell: "taking")
        monkeypatch.setattr(command, "run", self.run)
        monkeypatch.setattr(command, "compact", lambda archive, tell: self.did("compacted"))
        monkeypatch.setattr(command, "keep_latest", lambda archive, tell: self.did("latest kept"))

    def did(self, what: str) -> None:
        if self.fails_at == what:
            raise ArchiveError(f"{what}: no room")
        self.done.append(what)

    def archive(self, session: object, directory: str) -> Any:
        self.done.append(directory)
        return self

    def run(self, taking: object, rows: object, *, every_s: float | None) -> None:
        self.did(f"run every {every_s}")

    @property
    def spark(self) -> Any:
        return self

    readStream = spark

    def format(self, name: str) -> Any:
        return self

    def options(self, **given: str) -> Any:
        return self

    def load(self) -> Any:
        return "rows"


@pytest.mark.parametrize(
    ("words", "done"),
    [
        ([], ["kept", "run every None"]),
        (["--every", "5"], ["kept", "run every 5.0"]),
        (["--latest-keys", "--compact"], ["kept", "run every None", "compacted", "latest kept"]),
    ],
)
def test_a_run_does_what_was_asked_for_in_order(
    monkeypatch: pytest.MonkeyPatch, words: list[str], done: list[str]
) -> None:
    job = Job(monkeypatch)
    assert command.main([*LEAST, "--topics", "a", *words]) == 0
    assert job.done == done


@pytest.mark.parametrize("fails_at", ["run every None", "compacted", "latest kept"])
def test_a_failure_is_told_and_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails_at: str
) -> None:
    job = Job(monkeypatch, fails_at)
    assert command.main([*LEAST, "--topics", "a", "--compact", "--latest-keys"]) == 1
    assert fails_at not in job.done
    assert capsys.readouterr().err.endswith(f"archive: {fails_at}: no room\n")
