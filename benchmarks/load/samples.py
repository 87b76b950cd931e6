"""Raw samples: every request of a load as a row of a file, for independent evaluation.

A hot loop only appends numbers to columns in memory (`Samples`); the file is written when the load
is over, in the load's own process: parquet if pyarrow is installed, else gzipped JSON lines. A row
has everything that describes it, so files of many runs can be pooled; columns with the same value
in all rows cost next to nothing in either format. docs/spark.md says what each column means;
`python -m pipeline report` reads them.

A run is one call of a command, a load one process that measured something in it.
"""

import gzip
import json
import secrets
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs

NONE: Final = -1
"""Stands for "no value" in a column of numbers in memory, all of which are positive."""
TEXT: Final = "string"
INT: Final = "bigint"
FLOAT: Final = "double"
FLAG: Final = "boolean"
DURATIONS: Final = "map<string,double>"

LOAD_COLUMNS: Final = {
    "run": TEXT,
    "load": INT,
    "pair": INT,
    "benchmark": TEXT,
    "commit": TEXT,
    "began": TEXT,
    "machine": TEXT,
    "limits": TEXT,
    "layout": TEXT,
    "nodes": INT,
    "groups": INT,
    "client": TEXT,
    "message_bytes": INT,
    "rate": FLOAT,
    "connections": INT,
    "in_flight": INT,
}
"""The same in all rows of a load."""
SAMPLE_COLUMNS: Final = {
    **LOAD_COLUMNS,
    "window_from_ns": INT,
    "window_to_ns": INT,
    "others_share": FLOAT,
    "side": TEXT,
    "connection": INT,
    "intended_ns": INT,
    "start_ns": INT,
    "end_ns": INT,
    "latency_ns": INT,
    "records": INT,
    "bytes": INT,
    "ok": FLAG,
    "error": TEXT,
}
MOVE_COLUMNS: Final = {
    "run": TEXT,
    "load": INT,
    "commit": TEXT,
    "strategy": TEXT,
    "producer": TEXT,
    "rate": FLOAT,
    "grace_ms": FLOAT,
    "move": INT,
    "first_contact": FLAG,
    "source": INT,
    "target": INT,
    "quiet_from_ns": INT,
    "quiet_to_ns": INT,
    "handover_from_ns": INT,
    "handover_to_ns": INT,
    "redirect_from_ns": INT,
    "redirect_to_ns": INT,
    "phases_ms": DURATIONS,
}

BALANCED: Final = "balanced"
CONCENTRATED: Final = "concentrated"
MOVING: Final = "moving"
UNKNOWN: Final = "unknown"
"""Layouts: masters evenly spread, all on one node, moved during the load, brokers not ours."""
NO_LIMITS: Final = "none"
"""`limits` of nodes that share this machine's cores and network as they like."""
PRODUCE: Final = "produce"
FETCH: Final = "fetch"


@attrs.frozen(kw_only=True)
class Labels:
    """What is the same in all rows of a load; the columns' order is that of LOAD_COLUMNS."""

    run: str
    load: int
    pair: int | None = None
    benchmark: str
    commit: str
    began: str
    machine: str
    limits: str = NO_LIMITS
    layout: str
    nodes: int | None
    groups: int | None
    client: str
    message_bytes: int | None
    rate: float
    connections: int
    in_flight: int | None


@attrs.frozen(kw_only=True)
class SampleFile:
    """The file of a load's rows, and their labels; `name` has no suffix for the format."""

    name: str
    labels: Labels

    def to_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SampleFile":
        return cls(name=value["name"], labels=Labels(**value["labels"]))


@attrs.define(kw_only=True)
class SampleFolder:
    """The folder of one run's files; numbers its loads."""

    LOADS_MAX: ClassVar = 100_000
    folder: Path
    commit: str
    began: str
    machine: str
    run: str
    _loads: int = 0

    @classmethod
    def of(cls, folder: Path, environment: Mapping[str, Any]) -> "SampleFolder":
        """A new run in a folder, which is created; `environment` is from environment.describe."""
        folder.mkdir(parents=True, exist_ok=True)
        began = str(environment["began"])
        machine = environment["machine"]
        changed = "+" if environment["uncommitted_changes"] else ""
        stamp = began.partition("+")[0].replace("-", "").replace(":", "").replace("T", "-")
        return cls(
            folder=folder,
            commit=f"{environment['commit'][:12]}{changed}",
            began=began,
            machine=f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}",
            run=f"{stamp}-{secrets.token_hex(2)}",
        )

    def next_load(self, **labels: Any) -> SampleFile:  # noqa: ANN401 (the other fields of Labels)
        """The file of the next load; `labels` are those that the folder does not know."""
        assert self._loads < self.LOADS_MAX
        number, self._loads = self._loads, self._loads + 1
        return SampleFile(
            name=str(self.folder / f"{self.run}-{number:03}"),
            labels=Labels(
                run=self.run,
                load=number,
                commit=self.commit,
                began=self.began,
                machine=self.machine,
                **labels,
            ),
        )


@attrs.define(eq=False)
class Samples:
    """The rows of one load in memory, by columns. A hot loop only calls `add`."""

    side: list[str] = attrs.field(factory=list)
    connection: "array[int]" = attrs.field(factory=lambda: array("q"))
    intended_ns: "array[int]" = attrs.field(factory=lambda: array("q"))
    start_ns: "array[int]" = attrs.field(factory=lambda: array("q"))
    end_ns: "array[int]" = attrs.field(factory=lambda: array("q"))
    latency_ns: "array[int]" = attrs.field(factory=lambda: array("q"))
    records: "array[int]" = attrs.field(factory=lambda: array("q"))
    bytes: "array[int]" = attrs.field(factory=lambda: array("q"))
    errors: dict[int, str] = attrs.field(factory=dict)
    """By row, the reason of each failure."""

    def add(
        self, side: str, connection: int, intended: int, start: int, end: int, size: int
    ) -> None:
        """One request of one record; without `intended` (NONE) it was sent when it could be."""
        self.side.append(side)
        self.connection.append(connection)
        self.intended_ns.append(intended)
        self.start_ns.append(start)
        self.end_ns.append(end)
        self.latency_ns.append(end - (start if intended == NONE else intended))
        self.records.append(1)
        self.bytes.append(size)

    def add_batch(self, side: str, start: int, end: int, records: int, size: int) -> None:
        """What was acknowledged between two looks at a client: throughput without latency."""
        self.add(side, NONE, NONE, start, end, size)
        self.latency_ns[-1] = NONE
        self.records[-1] = records

    def add_failure(self, side: str, at: int, records: int, why: str) -> None:
        """This many records were refused, or their outcome is unknown."""
        self.errors[len(self.side)] = why
        self.add_batch(side, at, at, records, 0)

    def columns(self) -> dict[str, Sequence[Any]]:
        """By name, with None for missing values."""
        count = len(self.side)
        return {
            "side": self.side,
            **{
                name: _or_none(getattr(self, name))
                for name in ("connection", "intended_ns", "start_ns", "end_ns", "latency_ns")
            },
            "records": self.records,
            "bytes": self.bytes,
            "ok": [row not in self.errors for row in range(count)],
            "error": [self.errors.get(row) for row in range(count)],
        }


def _or_none(values: "array[int]") -> Sequence[int | None]:
    return [None if one == NONE else one for one in values] if NONE in values else values


def write_samples(
    file: SampleFile,
    samples: Samples,
    *,
    window_ns: tuple[int, int],
    others_share: float | None = None,
    form: str | None = None,
) -> Path:
    """Write a load's rows; returns the path. `form` is `parquet` or `jsonl.gz`."""
    same = {
        **attrs.asdict(file.labels),
        "window_from_ns": window_ns[0],
        "window_to_ns": window_ns[1],
        "others_share": others_share,
    }
    return _write(f"{file.name}.samples", SAMPLE_COLUMNS, same, samples.columns(), form)


def write_moves(
    file: SampleFile,
    same: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    form: str | None = None,
) -> Path:
    """Write the moves of a load; `same` is what all of them have in common."""
    labels = {name: getattr(file.labels, name) for name in ("run", "load", "commit", "rate")}
    names = [name for name in MOVE_COLUMNS if name not in labels and name not in same]
    columns = {name: [row[name] for row in rows] for name in names}
    return _write(f"{file.name}.moves", MOVE_COLUMNS, {**labels, **same}, columns, form)


def best_form() -> str:
    return "parquet" if find_spec("pyarrow") else "jsonl.gz"


def _write(
    name: str,
    types: Mapping[str, str],
    same: Mapping[str, Any],
    columns: Mapping[str, Sequence[Any]],
    form: str | None,
) -> Path:
    assert types.keys() == same.keys() | columns.keys(), types.keys() ^ (same.keys() | columns)
    form = form or best_form()
    path = Path(f"{name}.{form}")
    unfinished = path.with_name(f".{path.name}")  # a name that readers of the folder ignore
    if form == "parquet":
        _write_parquet(unfinished, types, same, columns)
    else:
        with gzip.open(unfinished, "wt", compresslevel=1, encoding="utf-8") as text:
            text.writelines(_json_lines(same, columns))
    return unfinished.replace(path)


def _json_lines(same: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """One row per line; the part common to all rows is encoded once."""
    begin = json.dumps(same)[:-1]
    rows: Iterable[tuple[Any, ...]] = zip(*columns.values(), strict=True)
    for row in rows:
        yield f"{begin}, {json.dumps(dict(zip(columns, row, strict=True)))[1:]}\n"


def _write_parquet(
    path: Path,
    types: Mapping[str, str],
    same: Mapping[str, Any],
    columns: Mapping[str, Sequence[Any]],
) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    by_name = {
        TEXT: arrow.string(),
        INT: arrow.int64(),
        FLOAT: arrow.float64(),
        FLAG: arrow.bool_(),
        DURATIONS: arrow.map_(arrow.string(), arrow.float64()),
    }
    count = len(next(iter(columns.values())))
    arrays = []
    for name, type_name in types.items():
        kind = by_name[type_name]
        if name in same:
            arrays.append(arrow.repeat(arrow.scalar(same[name], kind), count))
        elif type_name == DURATIONS:
            arrays.append(arrow.array([list(one.items()) for one in columns[name]], kind))
        else:
            arrays.append(arrow.array(columns[name], kind))
    table = arrow.table(dict(zip(types, arrays, strict=True)))
    parquet.write_table(table, path, compression="zstd")
