"""The command line: which options go together, and what it says about others."""

import pytest

from pipeline.placement.main import main

SERVERS = ["--bootstrap", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "--bootstrap"),
        ([*SERVERS, "--no-spark"], "go with --once"),
        ([*SERVERS, "--publish"], "go with --once"),
        ([*SERVERS, "--once", "--no-spark", "--decisions", "d"], "written by Spark"),
        ([*SERVERS, "--every", "0"], "more than 0"),
        ([*SERVERS, "--window", "45"], "multiples of slide"),
        ([*SERVERS, "--measure", "median"], "neither mean nor like p95"),
        ([*SERVERS, "--http", "here:x"], "not like 127.0.0.1:8092"),
        ([*SERVERS, "--option", "x"], "not like KEY=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert why in capsys.readouterr().err


def test_an_option_of_the_data_source_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SERVERS, "--once", "--no-spark", "--option", "kafka.securty.protocol=SSL"]
    assert main(words) == 1
    assert "did you mean security.protocol" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    patience = ["--option", "default.api.timeout.ms=1"]
    assert main([*SERVERS, "--once", "--no-spark", *patience]) == 1
    told = capsys.readouterr()
    assert "127.0.0.1:1" in told.err
    assert told.out == ""
