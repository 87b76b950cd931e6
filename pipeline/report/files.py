"""Which of the files that a user names are samples, which are moves, and in what format."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

FORMATS: Final[Mapping[str, str]] = {".parquet": "parquet", ".jsonl": "json", ".jsonl.gz": "json"}
"""Suffix of the name -> Spark's reader."""
KINDS: Final = ("samples", "moves")
NAMING: Final = (
    "names end with .samples or .moves and then .parquet, .jsonl or .jsonl.gz, "
    "as the benchmarks' --samples writes them"
)


class InputError(ValueError):
    """The report cannot be made from the input; the message says what is wrong, and where."""


class Inputs(NamedTuple):
    """Paths by (kind, Spark's reader)."""

    paths: Mapping[tuple[str, str], Sequence[str]]

    def of(self, kind: str) -> list[tuple[str, Sequence[str]]]:
        """(Spark's reader, paths)."""
        return [(form, paths) for (of, form), paths in self.paths.items() if of == kind]


def kind_of(name: str) -> tuple[str, str] | None:
    """(kind, Spark's reader) by the name of a file or pattern; None if it is neither kind."""
    for suffix, form in FORMATS.items():
        for kind in KINDS:
            if name.endswith(f".{kind}{suffix}"):
                return kind, form
    return None


def find(given: Iterable[str]) -> Inputs:
    """Files and folders of this machine, or, with a scheme (hdfs://...), what Spark's readers take.

    Raises:
        InputError: if one does not exist, is neither samples nor moves, or is given twice.
    """
    found: dict[tuple[str, str], list[str]] = {}
    seen: dict[str, str] = {}
    for one in given:
        for path in [one] if "://" in one else _on_this_machine(Path(one)):
            kind = kind_of(path)
            if kind is None:
                raise InputError(f"{path} is neither samples nor moves: {NAMING}")
            name = PurePosixPath(path).name
            if seen.setdefault(name, path) != path:
                raise InputError(f"{seen[name]} and {path} have one name: rows would count twice")
            if path not in (paths := found.setdefault(kind, [])):
                paths.append(path)
    if not any(kind == "samples" for kind, _ in found):
        raise InputError(f"no samples in {', '.join(given) or 'nothing'}: {NAMING}")
    return Inputs(found)


def _on_this_machine(path: Path) -> list[str]:
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if path.is_file() or kind_of(path.name):  # Spark writes a folder with a file's name
        return [str(path.resolve())]
    inside = (one for one in sorted(path.iterdir()) if not one.name.startswith((".", "_")))
    return [str(one.resolve()) for one in inside if kind_of(one.name)]
