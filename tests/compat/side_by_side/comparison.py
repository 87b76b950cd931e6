"""Both answers field by field; what differs, and the reason that differences.toml has for it."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.compat.side_by_side.peer import Answer
from tests.compat.side_by_side.plain import Tree

TABLE: Final = Path(__file__).parent / "differences.toml"
ABSENT: Final = "absent"
PRESENT: Final = "present"


@attrs.frozen(order=True)
class Difference:
    where: str
    field: str
    kafka: str
    evenkeel: str
    versions: str = ""

    def __str__(self) -> str:
        return f"{self.where} {self.versions}\n    {self.field}: {self.kafka} | {self.evenkeel}"


@attrs.frozen
class Reason:
    """One row of the table; each pattern must match as a whole."""

    where: str
    field: str
    why: str
    kafka: str = ".*"
    evenkeel: str = ".*"
    topic: str = ""
    """The heading in docs/kafka.md under which `why` stands; none where it says nothing new."""

    def explains(self, one: Difference) -> bool:
        pairs = (
            (self.where, one.where),
            (self.field, one.field),
            (self.kafka, one.kafka),
            (self.evenkeel, one.evenkeel),
        )
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in pairs)


def reasons(table: Path = TABLE) -> list[Reason]:
    rows = tomllib.loads(table.read_text())["difference"]
    return [Reason(**row) for row in rows]


def compare(kafka: Sequence[Answer], evenkeel: Sequence[Answer]) -> list[Difference]:
    """Versions with the same difference are one."""
    theirs = {(one.where, one.version): one.tree for one in kafka}
    ours = {(one.where, one.version): one.tree for one in evenkeel}
    found: dict[Difference, list[int]] = {}
    for where, version in dict.fromkeys([*theirs, *ours]):
        pair = theirs.get((where, version), "not asked"), ours.get((where, version), "not asked")
        for field, left, right in _differing("", *pair):
            found.setdefault(Difference(where, field, left, right), []).append(version)
    return [attrs.evolve(one, versions=_ranges(seen)) for one, seen in found.items()]


def unexplained(
    differences: Iterable[Difference], table: Sequence[Reason]
) -> tuple[list[Difference], list[Reason]]:
    """Those without a reason, and reasons for which there is no difference any more."""
    rest, idle = [], set(range(len(table)))
    for one in differences:
        fitting = [number for number, reason in enumerate(table) if reason.explains(one)]
        idle -= set(fitting)
        if not fitting:
            rest.append(one)
    return rest, [table[number] for number in sorted(idle)]


def _differing(path: str, kafka: Tree, evenkeel: Tree) -> Iterator[tuple[str, str, str]]:
    if isinstance(kafka, str) or isinstance(evenkeel, str):
        if kafka != evenkeel:
            yield path or "answer", _short(kafka), _short(evenkeel)
        return
    for name in dict.fromkeys([*kafka, *evenkeel]):
        inner = f"{path}.{name}" if path else str(name)
        if name not in kafka or name not in evenkeel:
            yield inner, _short(kafka.get(name, ABSENT)), _short(evenkeel.get(name, ABSENT))
        else:
            yield from _differing(inner, kafka[name], evenkeel[name])


def _short(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    error = tree.get("error_code")
    return f"{PRESENT}, {error}" if error else PRESENT


def _ranges(versions: Sequence[int]) -> str:
    first, last = min(versions), max(versions)
    if len(versions) == last - first + 1:
        return f"v{first}" if first == last else f"v{first}-{last}"
    return "v" + ",".join(map(str, sorted(versions)))
