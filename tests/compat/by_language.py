"""Runs the programs of other languages row by row; what it returns are columns of cells."""

import re
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.compat import counts
from tests.compat.cells import NOT_YET, Cell, Columns, Verdict
from tests.compat.frameworks import programs as frameworks
from tests.compat.go import programs as go
from tests.compat.java import programs as java
from tests.compat.javascript import programs as javascript
from tests.compat.language_rows import ROWS
from tests.compat.languages import Faults, Ground, Missing, Program, Row
from tests.compat.model import Lacking
from tests.compat.python import programs as python
from tests.compat.spark import programs as spark

LANGUAGES: Final[Mapping[str, Callable[[Path], Sequence[Program]]]] = {
    "Python": python.programs,
    "Java": java.programs,
    "Go": go.programs,
    "JavaScript": javascript.programs,
    "Frameworks": frameworks.programs,
    "Spark": spark.programs,
}


NOTHING: Final = "(?!)"
"""An expression that no name matches."""


@attrs.frozen
class Site:
    """What all rows share."""

    bootstrap: str
    elsewhere: str
    faults: Faults
    scratch: Path


def columns_of(site: Site, language: str, client: str, row: str) -> Columns | None:
    """A column for each program; `client` and `row` are regular expressions that choose what runs.

    None: the language is missing.
    """
    try:
        programs = LANGUAGES[language](site.scratch)
    except Missing as missing:
        print(f"{language}: skipped, {missing}")
        return None
    return {
        one.client: _column(site, one, row if re.search(client, one.client) else NOTHING)
        for one in programs
    }


def failures(columns: Columns) -> int:
    return sum(
        cell.verdict is Verdict.FAILED for column in columns.values() for cell in column.values()
    )


def _column(site: Site, program: Program, wanted: str) -> dict[str, Cell]:
    rows = {name: ROWS[name] for name in program.shows} | dict(program.own)
    cells = dict.fromkeys(rows, NOT_YET)
    for name, row in rows.items():
        if re.search(wanted, name):
            cell = cells[name] = _calmed(site, _cell(site, program, name, row))
            seconds, why = f"{cell.seconds:5.1f} s", cell.why[:300]
            print(f"{program.client:32} {name:46} {cell.verdict:8} {seconds} {why}", flush=True)
    return cells


def _cell(site: Site, program: Program, name: str, row: Row) -> Cell:
    scratch = _scratch(site, program.client, name)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    ground = Ground(site.bootstrap, scratch.name, site.faults, scratch, site.elsewhere)
    begun = time.monotonic()
    try:
        row(program, ground)
    except Lacking:
        return Cell(Verdict.LACKING)
    except Exception as error:  # noqa: BLE001  whatever a row raises is the cell's verdict
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
        return Cell(Verdict.FAILED, time.monotonic() - begun, why, counts.cells(scratch))
    return Cell(Verdict.OK, time.monotonic() - begun, counts=counts.cells(scratch))


def _calmed(site: Site, cell: Cell) -> Cell:
    """A cluster that does not calm down is the row's failure, and no reason to end the run."""
    try:
        site.faults.calm()
    except Exception as error:  # noqa: BLE001  whatever it is, the next row is to be tried
        traceback.print_exc()
        why = f"{cell.why} the masters did not become even again: {type(error).__name__}"
        return attrs.evolve(cell, verdict=Verdict.FAILED, why=why.strip())
    return cell


def _scratch(site: Site, client: str, row: str) -> Path:
    """Its name is the row's own, and one that topics may have."""
    return site.scratch / re.sub("[^a-z0-9]+", "-", f"{client} {row}".lower()).strip("-")


def in_order(columns: Columns) -> list[str]:
    """The shared rows as they stand in their table, then those of single clients."""
    met = [name for column in columns.values() for name in column]
    return [
        *(name for name in ROWS if name in met),
        *dict.fromkeys(name for name in met if name not in ROWS),
    ]
