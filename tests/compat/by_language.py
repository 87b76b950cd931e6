"""Runs the programs of other languages row by row; what it returns are columns of cells."""

import re
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.compat import counts
from tests.compat.cells import NOT_YET, Cell, Columns, Verdict, reason_for
from tests.compat.frameworks import programs as frameworks
from tests.compat.go import programs as go
from tests.compat.java import programs as java
from tests.compat.javascript import programs as javascript
from tests.compat.language_rows import ROWS
from tests.compat.languages import Faults, Ground, Missing, Program, Row
from tests.compat.model import Lacking
from tests.compat.python import programs as python
from tests.compat.spark import programs as spark
from tests.compat.together import side_by_side

LANGUAGES: Final[Mapping[str, Callable[[Path], Sequence[Program]]]] = {
    "Python": python.programs,
    "Java": java.programs,
    "Go": go.programs,
    "JavaScript": javascript.programs,
    "Frameworks": frameworks.programs,
    "Spark": spark.programs,
}


TOGETHER: Final = 9
"""Programs that try a row side by side: more would be a load of their own."""

Written = Callable[[str, Columns], None]


@attrs.frozen
class Site:
    """What all rows share."""

    bootstrap: str
    elsewhere: str
    faults: Faults
    scratch: Path


def run(
    site: Site, languages: Sequence[str], client: str, row: str, written: Written
) -> dict[str, Columns]:
    """A column for each program; `client` and `row` are regular expressions that choose what runs.

    A row is tried by several programs side by side, and each language's columns are `written` after
    it: a run of hours may be cut off. A language that is missing is left out.
    """
    programs = [one for language in languages for one in _programs(site, language)]
    rows = {
        one.client: {name: ROWS[name] for name in one.shows} | dict(one.own) for one in programs
    }
    columns: dict[str, dict[str, dict[str, Cell]]] = {one.language: {} for one in programs}
    for one in programs:
        columns[one.language][one.client] = dict.fromkeys(rows[one.client], NOT_YET)
    asked = [one for one in programs if re.search(client, one.client)]
    every = {one: column for told in columns.values() for one, column in told.items()}
    for name in filter(partial(re.search, row), in_order(every)):
        those = [one for one in asked if name in rows[one.client]]
        for some in (those[at : at + TOGETHER] for at in range(0, len(those), TOGETHER)):
            tried = {
                one.client: partial(_cell, site, one, name, rows[one.client][name]) for one in some
            }
            for told, cell in _calmed(site, side_by_side(site.faults, tried)).items():
                every[told][name] = cell
                seconds, why = f"{cell.seconds:5.1f} s", cell.why[:300]
                print(f"{told:32} {name:46} {cell.verdict:8} {seconds} {why}", flush=True)
            for language in {one.language for one in some}:
                written(language, columns[language])
    for language, those_columns in columns.items():
        written(language, those_columns)
    return dict(columns)


def _programs(site: Site, language: str) -> Sequence[Program]:
    try:
        return LANGUAGES[language](site.scratch)
    except Missing as missing:
        print(f"{language}: skipped, {missing}")
        return []


def failures(columns: Columns) -> int:
    return sum(
        cell.verdict is Verdict.FAILED for column in columns.values() for cell in column.values()
    )


def _cell(site: Site, program: Program, name: str, row: Row, faults: Faults) -> Cell:
    scratch = _scratch(site, program.client, name)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    ground = Ground(site.bootstrap, scratch.name, faults, scratch, site.elsewhere)
    begun = time.monotonic()
    try:
        row(program, ground)
    except Lacking:
        return Cell(Verdict.LACKING)
    except Exception as error:  # noqa: BLE001  whatever a row raises is the cell's verdict
        traceback.print_exc()
        why = reason_for(program.client, name, f"{type(error).__name__}: {error}")
        return Cell(Verdict.FAILED, time.monotonic() - begun, why, counts.cells(scratch))
    return Cell(Verdict.OK, time.monotonic() - begun, counts=counts.cells(scratch))


def _calmed(site: Site, tried: Mapping[str, Cell]) -> Mapping[str, Cell]:
    """A cluster that does not calm down is the row's failure, and no reason to end the run."""
    try:
        site.faults.calm()
    except Exception as error:  # noqa: BLE001  whatever it is, the next row is to be tried
        traceback.print_exc()
        why = f"the masters did not become even again: {type(error).__name__}"
        return {
            client: attrs.evolve(cell, verdict=Verdict.FAILED, why=f"{cell.why} {why}".strip())
            for client, cell in tried.items()
        }
    return tried


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
