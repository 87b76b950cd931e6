"""How a bug is planted: one line of production code is changed while a world runs.

A mutant is a text edit of a function's source. The edited source is compiled and its code object
swapped in, so that every holder of the function (a dispatch table, a `from x import y`) runs the
mutant, too. An edit that no longer matches the source raises an error: the table cannot go stale.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import attrs

from simulator.environment.options import Workload


class StaleEditError(Exception):
    """The line to change is not there, or no longer there."""


Where: TypeAlias = tuple[Callable[..., Any], str, str]
"""A function, the text to replace, and its replacement."""


@attrs.frozen
class Edit:
    """Replace every occurrence of `old` in the (dedented) source of `function` by `new`."""

    function: Callable[..., Any]
    old: str
    new: str

    def compiled(self) -> CodeType:
        return _edited(self.function, [(self.old, self.new)])


@attrs.frozen
class Mutant:
    rule: str
    what: str
    edits: tuple[Edit, ...]
    tests: str
    """Tests that are run with the mutant planted if the swarm finds nothing."""
    why_not: str = ""
    """Why the swarm is not expected to notice."""
    workload: Workload = Workload.COMMANDS
    """The worlds in which it is hunted."""
    settings: tuple[str, ...] = ()
    """Changes to those worlds' options (`--set`)."""


def mutant(
    rule: str,
    what: str,
    *edits: Where,
    tests: str,
    why_not: str = "",
    workload: Workload = Workload.COMMANDS,
    settings: tuple[str, ...] = (),
) -> Mutant:
    changes = tuple(Edit(*edit) for edit in edits)
    return Mutant(rule, what, changes, tests, why_not, workload, settings)


@contextmanager
def plant(mutant: Mutant) -> Iterator[None]:
    """Run the body with the mutant planted."""
    changes: dict[FunctionType, list[tuple[str, str]]] = {}
    for edit in mutant.edits:
        changes.setdefault(_plain(edit.function), []).append((edit.old, edit.new))
    codes = {function: _edited(function, pairs) for function, pairs in changes.items()}
    with ExitStack() as originals:
        for function, code in codes.items():
            originals.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield


def _plain(function: Callable[..., Any]) -> FunctionType:
    assert isinstance(function, FunctionType), f"{function} is no function written in Python"
    return function


def _edited(function: Callable[..., Any], changes: list[tuple[str, str]]) -> CodeType:
    source = _source(function)
    for old, new in changes:
        if old not in source:
            raise StaleEditError(f"{function.__qualname__} has no {old!r}")
        source = source.replace(old, new)
    name = function.__name__
    module = compile(ast.parse(source), f"<mutant of {function.__qualname__}>", "exec")
    codes = [one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == name]
    assert len(codes) == 1
    return codes[0]


@functools.cache
def _source(function: Callable[..., Any]) -> str:
    """The source before anything was planted: our own code objects have no file to read."""
    return textwrap.dedent(inspect.getsource(function))
