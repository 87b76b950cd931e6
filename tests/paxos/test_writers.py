"""Holds the source to the table of who writes which field of a replica (tests/paxos/writers.py)."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.paxos.writers import HOMES, MOVES, PARTS, SHARED, WRITERS, markdown

TREE = Path(__file__).parents[2]
ROOMS = ("paxos", "balancer", "broker", "coordinator", "runtime", "storage", "simulator")
CHANGING = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert"}
    | {"pop", "popleft", "remove", "setdefault", "update"}
)
"""Methods that change a set, a list or a dict."""
PAGE = TREE / "docs/reading-the-safety-argument.md"


class Write(NamedTuple):
    module: str
    line: int
    owner: str
    """The class of the field's owner if the source shows it, else ""."""
    field: str


class Call(NamedTuple):
    module: str
    line: int
    owner: str
    method: str


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(TREE).with_suffix("").parts)


@functools.cache
def trees(*rooms: str) -> list[tuple[str, ast.Module]]:
    return [
        (module_of(path), ast.parse(path.read_text()))
        for room in rooms
        for path in sorted((TREE / room).rglob("*.py"))
        if not path.name.startswith("mutants")  # these modules plant bugs on purpose
    ]


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """The targets that a statement or a call changes."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For):
        found = [node.target]
    elif isinstance(node, ast.Delete):
        found = node.targets
    elif isinstance(node, ast.With):
        found = [one.optional_vars for one in node.items if one.optional_vars is not None]
    elif isinstance(node, ast.Call):
        name = node.func
        if isinstance(name, ast.Attribute) and name.attr in CHANGING:
            part = PARTS.get(ast.unparse(name.value).rpartition(".")[2])
            if f"{part}.{name.attr}" not in MOVES:
                found = [name.value]
    while found:
        target = found.pop()
        if isinstance(target, ast.Tuple | ast.List):
            found.extend(target.elts)
        elif isinstance(target, ast.Subscript | ast.Starred):
            found.append(target.value)
        else:
            yield target


def fields() -> dict[str, set[str]]:
    """All fields of a replica's classes: field name -> the classes that have it."""
    found: dict[str, set[str]] = {}
    for name, module in HOMES.items():
        tree = ast.parse((TREE / module.replace(".", "/")).with_suffix(".py").read_text())
        (definition,) = (
            one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name
        )
        for node in definition.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, set()).add(name)
        for node in ast.walk(definition):
            for target in () if isinstance(node, ast.Call) else targets(node):
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    found.setdefault(target.attr, set()).add(name)
    return found


FIELDS = fields()


def owner_of(value: ast.expr, inside: str) -> str | None:
    """The class of an object by the name it is used under: "" if the name does not say, None if it
    is not one of a replica's classes."""
    text = ast.unparse(value)
    if text == "step":
        return None
    if text == "self":
        return inside if inside in HOMES else None
    last = text.rpartition(".")[2]
    if last == "replica" or last.startswith("replicas["):
        return "Core"
    if last == "peer" or last.startswith("peer("):
        return "Peer"
    by_name = {"election": "Election", "standstill": "Standstill", "questions": "Questions"}
    return {**PARTS, **by_name, "handover": "Handover", "rejoin": "Rejoin"}.get(last, "")


def with_classes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for statement in tree.body:
        inside = statement.name if isinstance(statement, ast.ClassDef) else ""
        for node in ast.walk(statement):
            yield inside, node


@functools.cache
def writes(*rooms: str) -> list[Write]:
    return [one for module, tree in trees(*rooms) for one in writes_of(module, tree)]


def writes_of(module: str, tree: ast.Module) -> Iterator[Write]:
    for inside, node in with_classes(tree):
        for target in targets(node):
            if not isinstance(target, ast.Attribute) or target.attr not in FIELDS:
                continue
            text = ast.unparse(target.value)
            of_all_groups = target.attr in SHARED and (inside == "MultiGroup" or "multi" in text)
            owner = "Core" if of_all_groups else owner_of(target.value, inside)
            if owner is None:
                continue
            # Outside paxos/ a `peer` and a `lease` are other things, unless they belong to a
            # replica.
            if module.startswith("paxos.") or of_all_groups or "replica" in text:
                yield Write(module, target.lineno, owner, target.attr)


ONE_OBJECT = ("Core", "Live", "Replica")
"""A replica is all three: a field's name decides which of them has it."""


def may(write: Write) -> bool:
    """Whether the module may write this field of the class, or of any class if it is unknown."""
    owners = ONE_OBJECT if write.owner in ONE_OBJECT else (write.owner,)
    if not write.owner:
        owners = tuple(HOMES)
    return any(
        write.module == HOMES[one] or write.module in WRITERS.get(f"{one}.{write.field}", ())
        for one in owners
        if one in FIELDS[write.field]
    )


def test_nobody_else_writes_a_field() -> None:
    found = writes(*ROOMS)
    assert len(found) > 150
    assert [one for one in found if not may(one)] == []


def test_everybody_in_the_table_writes() -> None:
    """An unused row would permit a write that nobody needs."""
    wrote = {(one.module, one.field) for one in writes(*ROOMS)}
    allowed = {(m, row.partition(".")[2]) for row, modules in WRITERS.items() for m in modules}
    assert allowed - wrote == set()


def mutators(name: str) -> set[str]:
    """Public methods of a class that change it, directly or through another of its methods."""
    tree = ast.parse((TREE / HOMES[name].replace(".", "/")).with_suffix(".py").read_text())
    (definition,) = (
        one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name
    )
    methods = {one.name: one for one in definition.body if isinstance(one, ast.FunctionDef)}
    found: set[str] = set()
    grows = True
    while grows:
        grows = False
        for method, body in methods.items():
            if method in found:
                continue
            for node in ast.walk(body):
                own = any(
                    ast.unparse(target).startswith("self.") or "flight." in ast.unparse(target)
                    for target in targets(node)
                )
                calls = (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and ast.unparse(node.func.value) == "self"
                    and node.func.attr in found
                )
                if own or calls:
                    found.add(method)
                    grows = True
                    break
    return {one for one in found if not one.startswith("_")}


@pytest.mark.parametrize("name", sorted({"Core", *PARTS.values()}))
def test_all_moves_of_the_parts_are_in_the_table(name: str) -> None:
    in_table = {row.partition(".")[2] for row in MOVES if row.startswith(f"{name}.")}
    blank = {"peer"} if name == "Core" else set()  # nothing is known of a peer that it makes
    assert mutators(name) - blank == in_table


def calls(*rooms: str) -> Iterator[Call]:
    for module, tree in trees(*rooms):
        for inside, node in with_classes(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            text = ast.unparse(node.func.value)
            last = text.rpartition(".")[2]
            owner = PARTS.get(last)
            if last == "replica" or (inside in ("Live", "Replica") and text == "self"):
                owner = "Core"
            if owner is None or (inside in HOMES and text == "self" and owner != "Core"):
                continue
            if f"{owner}.{node.func.attr}" not in MOVES:
                continue
            if module.startswith("paxos.") or "replica" in text:
                yield Call(module, node.lineno, owner, node.func.attr)


def test_nobody_else_makes_a_move() -> None:
    found = list(calls(*ROOMS))
    assert [one for one in found if one.module not in MOVES[f"{one.owner}.{one.method}"]] == []
    made = {(one.module, f"{one.owner}.{one.method}") for one in found}
    assert {(module, row) for row, modules in MOVES.items() for module in modules} - made == set()


def test_the_page_shows_the_table() -> None:
    assert "\n".join(markdown()) in PAGE.read_text(), "see tests/paxos/writers.py `markdown`"


@pytest.mark.parametrize(
    "text",
    [
        "replica.suspended = 1",
        "x, replica.suspended = 1, 2",
        "replica.alleged[node] = 1",
        "del replica.alleged[node]",
        "replica.witnesses.add(node)",
        "replica.lease.ver += 1",
        "acceptor.promised = ballot",
        "replica.peer(node).witnessed = ballot",
        "something.promised = ballot",
        "for replica.suspended in slots: ...",
        "replica.acceptor.votes.pop(1)",
        "replica.heard[node] = 1",
        "multi.incarnations[node] = 1",
    ],
)
def test_a_write_from_elsewhere_is_refused(text: str) -> None:
    (found,) = writes_of("paxos.liveness.timers", ast.parse(text))
    assert not may(found)


def test_nothing_is_written_behind_the_table() -> None:
    for module, tree in trees("paxos"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("setattr", "delattr", "vars"), (module, node.lineno)
