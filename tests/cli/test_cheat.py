"""`evenkeel cheat`: the program understands every command of the page."""

import re
import shlex

import pytest

from cli import cheat
from cli.main import _parser, run
from wire.software import VERSION


def test_the_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cheat"]) == 0
    assert capsys.readouterr().out == cheat.PAGE


def test_it_fits_a_terminal() -> None:
    assert max(map(len, cheat.PAGE.splitlines())) <= 80


COMMANDS = re.findall(r"^  evenkeel (.+?)(?:  .*)?$", cheat.PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one(line: str) -> None:
    _parser().parse_args(shlex.split(line))


def test_every_group_of_commands_is_on_it() -> None:
    assert {line.split()[0] for line in COMMANDS} >= {"up", "node", "topic", "group", "balance"}


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"evenkeel {VERSION}\n"
    assert run(["version"]) == 0
    assert capsys.readouterr().out == f"{VERSION}\n"
