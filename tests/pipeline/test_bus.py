"""How a job gets the address of the bus."""

import argparse
from pathlib import Path

import pytest

from pipeline.bus import add_bus_options, bus_options


def given(*words: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_bus_options(parser)
    return bus_options(parser.parse_args(["--bootstrap", "here:1", *words]))


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("# ours\n\nkafka.sasl.password = a=b \nclient.id=x\n")
    assert given("--options-from", str(secrets), "--option", "client.id=y") == {
        "kafka.bootstrap.servers": "here:1",
        "kafka.sasl.password": "a=b",
        "client.id": "y",
    }


@pytest.mark.parametrize("text", ["nonsense", "=x"])
def test_what_is_no_option_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        given("--option", text)
    assert "is not like KEY=VALUE" in capsys.readouterr().err
    secrets = tmp_path / "secrets"
    secrets.write_text(text)
    with pytest.raises(SystemExit, match="is not like KEY=VALUE"):
        given("--options-from", str(secrets))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No such file"):
        given("--options-from", str(tmp_path / "none"))
