"""`evenkeel completion SHELL`: a script with which a shell completes commands, options and paths.

It is generated from the parser itself, so it knows whatever the parser knows; none of our code runs
when somebody presses Tab.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import shtab

SHELLS: Final = ("bash", "zsh", "fish")
DIRECTORY: Final = "DIR"
"""The metavar of arguments that are directories, by convention in our parsers."""


def add_options(parser: argparse.ArgumentParser, whole: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(whole=whole)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    print(script(options.whole, options.shell))
    return 0


def script(whole: argparse.ArgumentParser, shell: str) -> str:
    """The script for the shell, for all of `whole`."""
    for action in _actions(whole):
        if action.type is Path:
            kind = shtab.DIRECTORY if action.metavar == DIRECTORY else shtab.FILE
            action.complete = kind  # type: ignore[attr-defined]  # shtab looks for it
    text: str = shtab.complete(whole, shell=shell)
    return text


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
