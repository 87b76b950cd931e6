"""Builds a wheel whose only name is that of its package: hatchling calls this (pyproject.toml).

The rooms of this repository stand side by side at its root, and import one another as `wire.codec`
or `storage.log`. Names as common as these belong to the user's own modules in an environment. So
the wheel has the rooms inside the package, as `evenkeel._internal.wire`, and what is here rewrites
their imports on the way; nothing is put on a path while a program runs (ADR 59).

Only import statements and the command's entry point are rewritten. Code that needs the name of a
module as a string takes `module.__name__`; what this cannot rewrite, it refuses to build.
"""

import ast
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSIDE: Final = "_internal"
EXPLANATION: Final = (
    '"""Modules of Evenkeel itself: they may change with every version. Import {package}."""\n'
)
REFUSAL: Final = (
    "{where}:{line}: the wheel cannot rewrite this import of a room; "
    "write `from room.module import name`, or `import room` alone"
)


class CannotNestError(ValueError):
    """A module imports another one in a way that cannot be rewritten."""


class NestedWheel(BuildHookInterface):  # type: ignore[type-arg]  # of any builder
    """Options: `package`, `rooms` (all that it needs beside itself), `tree` (where they are)."""

    PLUGIN_NAME = "custom"
    _draft: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a developer's environment has the rooms as they stand
        package, rooms = self.config["package"], self.config["rooms"]
        tree = Path(self.root, self.config.get("tree", "."))
        self._draft = Path(tempfile.mkdtemp())
        nest(tree, package, rooms, self._draft / package)
        build_data["force_include"][str(self._draft / package)] = package
        scripts = self.metadata.core.scripts
        scripts.update({name: nested(target, package, rooms) for name, target in scripts.items()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._draft is not None:
            shutil.rmtree(self._draft)


def nest(tree: Path, package: str, rooms: Collection[str], target: Path) -> None:
    """Copy the package and its rooms, a folder or a file each, with their imports rewritten.

    Raises:
        CannotNestError: an import has a form that cannot be rewritten.
    """
    for source in sources(tree, (package, *rooms)):
        path = source.relative_to(tree)
        at = path.relative_to(package) if path.parts[0] == package else Path(INSIDE, path)
        copy = target / at
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".py":
            text = source.read_text(encoding="utf-8")
            copy.write_text(rewritten(text, package, rooms, str(path)), encoding="utf-8")
        else:
            shutil.copyfile(source, copy)
    explained = EXPLANATION.format(package=package)
    (target / INSIDE / "__init__.py").write_text(explained, encoding="utf-8")


def sources(tree: Path, rooms: Iterable[str]) -> Iterator[Path]:
    for room in rooms:
        file = tree / f"{room}.py"
        found = [file] if file.exists() else sorted((tree / room).rglob("*"))
        found = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
        assert found, f"there is no {room} in {tree}"
        yield from found


def nested(name: str, package: str, rooms: Collection[str]) -> str:
    """The name of a module in the wheel; `cli.main:main` too."""
    return f"{package}.{INSIDE}.{name}" if re.split(r"[.:]", name)[0] in rooms else name


def rewritten(text: str, package: str, rooms: Collection[str], where: str) -> str:
    """A module's source, with each import of a room changed to that of the nested one.

    Lines stay where they are, so that a traceback leads to the line of the repository.

    Raises:
        CannotNestError: an import has a form that cannot be rewritten.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text, where)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in rooms:
                old, new = f"from {module} ", f"from {nested(module, package, rooms)} "
            case ast.Import(names=names) if any(one.name.split(".")[0] in rooms for one in names):
                room = names[0].name
                old, new = f"import {room}", f"from {package}.{INSIDE} import {room}"
                if len(names) > 1 or "." in room or names[0].asname:
                    raise CannotNestError(REFUSAL.format(where=where, line=node.lineno))
            case _:
                continue
        line = lines[node.lineno - 1]
        before, statement = line[: node.col_offset], line[node.col_offset :]
        if not statement.startswith(old):
            raise CannotNestError(REFUSAL.format(where=where, line=node.lineno))
        lines[node.lineno - 1] = before + new + statement.removeprefix(old)
    return "".join(lines)
