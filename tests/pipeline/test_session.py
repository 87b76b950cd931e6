"""The session of a job: the defaults, and what a user reads."""

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.__main__ import JOBS, main
from pipeline.session import ALWAYS, add_session_options, follow, progress_line, settings


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_session_options(parser)
    return parser.parse_args(words)


def test_a_session_of_ones_own_is_local_and_in_utc() -> None:
    ours = settings(options(), submitted=None)
    assert ours["spark.sql.session.timeZone"] == "UTC"
    assert ours["spark.driver.host"] == "127.0.0.1"
    assert "spark.master" not in ours


def test_what_was_said_to_spark_submit_holds() -> None:
    submitted = {"spark.master": "spark://there:7077", "spark.sql.session.timeZone": "Asia/Tokyo"}
    assert settings(options(), submitted=submitted) == {
        **submitted,
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": ALWAYS["spark.redaction.regex"],
    }


def test_what_was_said_here_wins() -> None:
    words = ("--master", "local[4]", "--conf", "spark.driver.memory=9g")
    ours = settings(options(*words), submitted={"spark.driver.memory": "1g"})
    assert (ours["spark.master"], ours["spark.driver.memory"]) == ("local[4]", "9g")


@pytest.mark.parametrize("text", ["spark.driver.memory", "memory=4g"])
def test_a_setting_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--conf", text)
    assert "is not like spark.driver.memory=4g" in capsys.readouterr().err


def progress(batch: int, rows: int) -> dict[str, Any]:
    return {"batchId": batch, "numInputRows": rows, "durationMs": {"triggerExecution": 2000}}


def test_progress_is_told_once_a_batch_and_not_of_empty_ones() -> None:
    """A query reports the same progress again until there is more, and empty progress while it is
    idle."""
    looks = [[progress(0, 5000)], [progress(0, 5000), progress(1, 0)], [progress(2, 1)]]
    stopped: list[bool] = []
    query = SimpleNamespace(recentProgress=[], stop=lambda: stopped.append(True))

    def await_termination(_seconds: float) -> bool:
        query.recentProgress = looks.pop(0)
        return not looks

    query.awaitTermination = await_termination
    told: list[str] = []
    follow(query, told.append)  # type: ignore[arg-type]  # all of a query that is used
    assert told == [
        "batch 0: 5,000 rows in 2.0 s (2,500/s)",
        "batch 2: 1 rows in 2.0 s (0/s)",
    ]
    assert stopped


def test_a_batch_that_took_no_time_has_no_speed() -> None:
    none = {"batchId": 7, "numInputRows": 3, "durationMs": {}}
    assert progress_line(none) == "batch 7: 3 rows in 0.0 s"


def test_help_names_every_job_and_needs_no_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in JOBS)


def test_a_job_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dance"]) == 2
    assert "no job named 'dance'" in capsys.readouterr().err
