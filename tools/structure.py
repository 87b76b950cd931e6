"""`python tools/structure.py`: checks which module may import which; `make check` runs it.

A *room* is a top-level package, a *floor* a layer of rooms. The check refuses a circle of files, a
circle of folders within a room, an import from a lower floor to a higher one, and a folder of more
than 20 modules, tests included. Imports for type checkers and imports within functions count like
all others. `--draw FILE` writes the drawing of docs/architecture.md, also for another tree (`--tree
DIR`), however many circles it has.
"""

import argparse
import ast
import html
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

FLOORS: Final = (
    ("benchmarks",),
    ("cli",),
    ("cluster", "simulator", "pipeline"),
    ("evenkeel", "pyspark_evenkeel"),
    ("runtime",),
    ("broker",),
    ("coordinator", "balancer", "storage"),
    ("paxos", "wire", "history", "dashboards"),
)
"""From top to bottom, as in the import contracts (pyproject.toml)."""
MODULES_MAX: Final = 20
"""Modules in one folder, not counting `__init__.py`."""


class Module(NamedTuple):
    name: str
    folder: str
    """Its package, dotted."""
    lines: int
    imports: frozenset[str]
    """Modules of this tree."""


def modules_of(tree: Path) -> dict[str, Module]:
    """All modules of all existing rooms, by their dotted names."""
    files = {}
    for room in (room for floor in FLOORS for room in floor):
        for path in sorted((tree / room).rglob("*.py")):
            parts = path.relative_to(tree).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: _read(name, path, files) for name, path in files.items()}


def _read(name: str, path: Path, files: Mapping[str, Path]) -> Module:
    text = path.read_text()
    is_package = path.name == "__init__.py"
    imports = frozenset(_imports(ast.parse(text), files)) - {name}
    folder = name if is_package else name.rpartition(".")[0]
    return Module(name, folder, text.count("\n"), imports)


def _imports(tree: ast.AST, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                if whole in files:
                    yield whole
                elif node.module in files:
                    yield node.module


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Sets of two or more names that can all reach each other, the largest first."""
    reached = {name: _reached(name, edges) for name in edges}
    found = {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in edges
        if name in reached[name]
    }
    return sorted(map(sorted, found), key=len, reverse=True)


def _reached(start: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    reached: set[str] = set()
    frontier = [start]
    while frontier:
        for other in edges.get(frontier.pop(), ()):
            if other not in reached:
                reached.add(other)
                frontier.append(other)
    return reached


def room_of(name: str) -> str:
    return name.partition(".")[0]


def part_of(name: str, folder: str) -> str:
    """The part of its room that a module is in: a folder of the room, or the room itself.

    A folder in a folder belongs to the outer one.
    """
    return ".".join(folder.split(".")[:2])


def parts(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """The imports between folders of the same room; the room's own files stand by name."""
    edges: dict[str, set[str]] = defaultdict(set)
    at = {
        name: part if (part := part_of(name, one.folder)) != room_of(name) else name
        for name, one in modules.items()
    }
    for name, one in modules.items():
        edges[at[name]] |= {
            at[other]
            for other in one.imports
            if room_of(other) == room_of(name) and at[other] != at[name]
        }
    return edges


def upward(modules: Mapping[str, Module]) -> list[tuple[str, str]]:
    floor_of = {room: height for height, floor in enumerate(FLOORS) for room in floor}
    return sorted(
        (name, other)
        for name, one in modules.items()
        for other in one.imports
        if room_of(other) != room_of(name) and floor_of[room_of(other)] <= floor_of[room_of(name)]
    )


def crowded(modules: Mapping[str, Module]) -> dict[str, int]:
    sizes = Counter(one.folder for name, one in modules.items() if name != one.folder)
    return {folder: size for folder, size in sorted(sizes.items()) if size > MODULES_MAX}


def crowded_tests(tree: Path) -> dict[str, int]:
    """Folders of tests, as paths: tests are not packages."""
    sizes = Counter(
        path.parent.relative_to(tree).as_posix()
        for path in (tree / "tests").rglob("*.py")
        if path.name != "__init__.py"
    )
    return {folder: size for folder, size in sorted(sizes.items()) if size > MODULES_MAX}


def objections(modules: Mapping[str, Module], tree: Path) -> list[str]:
    """What is wrong with the structure, in words."""
    return [
        *(
            f"a circle of {len(circle)} files: {', '.join(circle)}"
            for circle in circles({name: one.imports for name, one in modules.items()})
        ),
        *(f"a circle of folders: {', '.join(circle)}" for circle in circles(parts(modules))),
        *(f"{name} imports {other}, which is not below it" for name, other in upward(modules)),
        *(
            f"{folder} has {size} modules: more than {MODULES_MAX}"
            for folder, size in (crowded(modules) | crowded_tests(tree)).items()
        ),
    ]


WIDTH: Final = 1200
BOX: Final = 30
GAP: Final = 8
ROOM_STYLE: Final = 'fill="#eef2f7" stroke="#8899aa"'
PART_STYLE: Final = 'fill="#ffffff" stroke="#8899aa"'
BAD_STYLE: Final = 'fill="#fde0dc" stroke="#c62828"'


def drawing(modules: Mapping[str, Module], title: str) -> str:
    """Floors from top to bottom, with their rooms and folders; what is wrong is red."""
    in_circle = {
        name for circle in circles({n: m.imports for n, m in modules.items()}) for name in circle
    }
    shapes: list[str] = []
    y = 40
    for floor in FLOORS:
        rooms = [room for room in floor if any(room_of(name) == room for name in modules)]
        if not rooms:
            continue
        width = (WIDTH - 2 * GAP) // len(rooms)
        height = 0
        for place, room in enumerate(rooms):
            height = max(
                height, _room(shapes, modules, room, GAP + place * width, y, width - GAP, in_circle)
            )
        y += height + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{y}" fill="white"/>'
        f'<text x="{GAP}" y="24" font-size="16" font-weight="bold">{html.escape(title)}</text>'
    )
    return "\n".join([head, *shapes, "</svg>\n"])


def _room(
    shapes: list[str],
    modules: Mapping[str, Module],
    room: str,
    x: int,
    y: int,
    width: int,
    in_circle: set[str],
) -> int:
    inside: dict[str, list[Module]] = defaultdict(list)
    for name, one in modules.items():
        if room_of(name) == room:
            inside[part_of(name, one.folder)].append(one)
    columns = max(1, width // 180)
    box_width = (width - GAP) // columns - GAP
    rows = -(-len(inside) // columns)
    height = 28 + rows * (BOX + GAP)
    total = sum(one.lines for found in inside.values() for one in found)
    shapes.append(
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" {ROOM_STYLE}/>'
        f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{room}/</text>'
        f'<text x="{x + width - 8}" y="{y + 18}" text-anchor="end" fill="#556">'
        f"{sum(map(len, inside.values()))} modules, {total:,} lines</text>"
    )
    for number, (part, found) in enumerate(sorted(inside.items())):
        left = x + GAP + number % columns * (box_width + GAP)
        top = y + 28 + number // columns * (BOX + GAP)
        bad = sum(one.name in in_circle for one in found)
        own = sum(one.name != one.folder for one in found)
        many = own > MODULES_MAX and part == room
        style = BAD_STYLE if bad or many else PART_STYLE
        label = "its own files" if part == room else part.partition(".")[2] + "/"
        more = f", {bad} in circles" if bad else ""
        shapes.append(
            f'<rect x="{left}" y="{top}" width="{box_width}" height="{BOX}" rx="4" {style}/>'
            f'<text x="{left + 6}" y="{top + 13}">{label}</text>'
            f'<text x="{left + 6}" y="{top + 26}" font-size="10" fill="#556">{own}{more}</text>'
        )
    return height


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tree", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--draw", type=Path, metavar="FILE")
    parser.add_argument("--title", default="The house: each floor imports only what is below it")
    parser.add_argument("--lines", action="store_true", help="lines of code by room")
    options = parser.parse_args(arguments)
    modules = modules_of(options.tree)
    if options.lines:
        lines: Counter[str] = Counter()
        for name, module in modules.items():
            lines[room_of(name)] += module.lines
        for room, count in sorted(lines.items()):
            print(f"{room:<18}{count:>8,}")
    found = objections(modules, options.tree)
    if options.draw:
        options.draw.write_text(drawing(modules, options.title))
        return 0
    print(*found, sep="\n", end="\n" if found else "")
    folders = len({one.folder for one in modules.values()})
    print(f"{len(modules)} modules in {folders} folders: {len(found)} objections")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
