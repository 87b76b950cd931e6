"""Runs the programs of other languages row by row; what it returns is a table per language."""

import re
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.compat import counts
from tests.compat.cells import Cell, Verdict, table
from tests.compat.frameworks import programs as frameworks
from tests.compat.go import programs as go
from tests.compat.java import programs as java
from tests.compat.javascript import programs as javascript
from tests.compat.language_rows import ROWS
from tests.compat.languages import Faults, Ground, Missing, Program, Row
from tests.compat.model import Lacking
from tests.compat.spark import programs as spark

LANGUAGES: Final[Mapping[str, Callable[[Path], Sequence[Program]]]] = {
    "Java": java.programs,
    "Go": go.programs,
    "JavaScript": javascript.programs,
    "Frameworks": frameworks.programs,
    "Spark": spark.programs,
}


@attrs.frozen
class Site:
    """What all rows share."""

    bootstrap: str
    elsewhere: str
    faults: Faults
    scratch: Path


def tables(
    site: Site, languages: Sequence[str], client: str, row: str
) -> tuple[dict[str, str], int]:
    """A table per language as Markdown, and how many cells failed.

    `client` and `row` are regular expressions that choose.
    """
    told, failed = {}, 0
    for language in languages:
        try:
            programs = LANGUAGES[language](site.scratch)
        except Missing as missing:
            print(f"{language}: skipped, {missing}")
            continue
        columns = {
            one.client: _column(site, one, row) for one in programs if re.search(client, one.client)
        }
        counted = "".join(
            counts.line(client, name, _scratch(site, client, name))
            for client, column in columns.items()
            for name in column
        )
        told[language] = table(columns, _in_order(columns))
        if counted:
            told[language] += f"\nWhat clients counted:\n\n{counts.HEAD}{counted}"
        failed += sum(
            cell.verdict is Verdict.FAILED
            for column in columns.values()
            for cell in column.values()
        )
    return told, failed


def _column(site: Site, program: Program, wanted: str) -> dict[str, Cell]:
    rows = {name: ROWS[name] for name in program.shows} | dict(program.own)
    cells = {}
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
        return Cell(Verdict.FAILED, time.monotonic() - begun, f"{type(error).__name__}: {error}")
    return Cell(Verdict.OK, time.monotonic() - begun)


def _calmed(site: Site, cell: Cell) -> Cell:
    """A cluster that does not calm down is the row's failure, and no reason to end the run."""
    try:
        site.faults.calm()
    except Exception as error:  # noqa: BLE001  whatever it is, the next row is to be tried
        traceback.print_exc()
        why = f"{cell.why} the masters did not become even again: {type(error).__name__}"
        return Cell(Verdict.FAILED, cell.seconds, why.strip())
    return cell


def _scratch(site: Site, client: str, row: str) -> Path:
    """Its name is the row's own, and one that topics may have."""
    return site.scratch / re.sub("[^a-z0-9]+", "-", f"{client} {row}".lower()).strip("-")


def _in_order(columns: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """The shared rows as they stand in their table, then those of single clients."""
    met = [name for column in columns.values() for name in column]
    return [
        *(name for name in ROWS if name in met),
        *dict.fromkeys(name for name in met if name not in ROWS),
    ]
