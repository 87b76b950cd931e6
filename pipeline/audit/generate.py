"""`python -m pipeline.audit.generate OUT`: a large history with a known number of anomalies.

Clients send to every partition of one topic, and one reader per partition polls all of it. The
history is correct except for what is planted. Plants do not affect each other (a *cell*, a run of
messages that one process sent to one partition, has at most one), so a checker must count the sum
of what each plant shows: `SHOWS`. The same arguments give the same history, byte by byte.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from history.anomaly import Anomaly
from history.record import UNKNOWN, Key, Op, Outcome, Record

CELL: Final = 100
"""Messages of one cell."""
PLACE: Final = 40
"""The index of a plant in its cell; no poll begins there."""
POLL: Final = 50
"""Messages per poll."""
STEP_NS: Final = 1000
"""Time between two sends to the same partition."""
BEGINNING_NS: Final = 1_000_000_000
TOPIC: Final = "orders"
CELLS_A_WRITE: Final = 200


class Plant(StrEnum):
    """The fault in a cell."""

    LOST = "lost"  # acknowledged, but the reader skips it
    STORED_TWICE = "stored-twice"
    READ_TWICE = "read-twice"
    SWAPPED = "swapped"  # two sends of one process: the later one has the lower offset
    PHANTOM = "phantom"  # never sent
    REFUSED = "refused"  # its send failed, but it is in the log
    UNKNOWN = "unknown"  # its outcome is unknown, and it is in the log: no anomaly, but reported


SHOWS: Final[Mapping[Plant, tuple[Anomaly, ...]]] = {
    Plant.LOST: (Anomaly.LOST_WRITE, Anomaly.INT_POLL_SKIP, Anomaly.LOST_ON_READER),
    Plant.STORED_TWICE: (Anomaly.DUPLICATE,),
    Plant.READ_TWICE: (Anomaly.INT_NONMONOTONIC_POLL,),
    Plant.SWAPPED: (Anomaly.NONMONOTONIC_SEND, Anomaly.REALTIME_ORDER),
    Plant.PHANTOM: (Anomaly.UNEXPECTED,),
    Plant.REFUSED: (Anomaly.G1A,),
    Plant.UNKNOWN: (Anomaly.RECOVERED,),
}
"""How often a checker finds each anomaly, for each plant; `lost-middle` and `realtime-lag` count
once for each partition that has them."""


class Cell(NamedTuple):
    partition: int
    round: int


@attrs.frozen(kw_only=True)
class Shape:
    """The amounts."""

    records: int = 10_000_000
    partitions: int = 12
    producers: int = 4
    readers: int = 4
    plants: int = 10
    """Of each kind."""
    seed: int = 1

    @property
    def rounds(self) -> int:
        """A message is two records, a send and a poll."""
        return -(-self.records // (2 * CELL * self.partitions))

    def planted(self) -> dict[Cell, Plant]:
        """The plant of each cell that has one.

        Raises:
            ValueError: there are more plants than cells.
        """
        kinds = [kind for kind in Plant for _ in range(self.plants)]
        cells = self.rounds * self.partitions
        if len(kinds) > cells:
            raise ValueError(f"{len(kinds)} plants need as many cells, but there are {cells}")
        places = random.Random(self.seed).sample(range(cells), len(kinds))
        return {
            Cell(place % self.partitions, place // self.partitions): kind
            for place, kind in zip(places, kinds, strict=True)
        }

    def expected(self) -> dict[Anomaly, int]:
        """What a checker must count, without mere reports of lag."""
        planted = self.planted()
        counts = Counter(anomaly for kind in planted.values() for anomaly in SHOWS[kind])
        counts[Anomaly.LOST_MIDDLE] = len(
            {cell.partition for cell, kind in planted.items() if kind == Plant.LOST}
        )
        return {anomaly: count for anomaly, count in counts.items() if count}


def history(shape: Shape, planted: Mapping[Cell, Plant]) -> Iterator[list[Record]]:
    """The records, cell by cell; each process's records in the order in which it acted."""
    ends = [0] * shape.partitions
    for partition in range(shape.partitions):
        reader = _reader(shape, partition)
        yield [Record(Op.ASSIGN, reader, Key(TOPIC, partition), None, 0)]
    for round_number in range(shape.rounds):
        for partition in range(shape.partitions):
            cell = Cell(partition, round_number)
            records, ends[partition] = _cell(shape, cell, ends[partition], planted.get(cell))
            yield records
    after_ns = _time_ns(shape.rounds + 1, 0)
    for partition, end in enumerate(ends):
        reader, key = _reader(shape, partition), Key(TOPIC, partition)
        yield [
            Record(Op.LATEST, reader, key, None, end, Outcome.OK, after_ns, after_ns + 10),
            Record(Op.DRAINED, reader, key, None, end, Outcome.OK, after_ns + 20, after_ns + 20),
        ]


def _reader(shape: Shape, partition: int) -> str:
    return f"reader-{partition % shape.readers}"


def _time_ns(round_number: int, message: int) -> int:
    return BEGINNING_NS + (round_number * CELL + message) * STEP_NS


def _cell(shape: Shape, cell: Cell, offset: int, plant: Plant | None) -> tuple[list[Record], int]:
    """The cell's records, and the next offset after them."""
    key = Key(TOPIC, cell.partition)
    producer = f"producer-{cell.round % shape.producers}"
    numbers = range(cell.round * CELL, (cell.round + 1) * CELL)
    values = [f"{number}-{cell.partition}" for number in numbers]
    times = range(_time_ns(cell.round, 0), _time_ns(cell.round, CELL), STEP_NS)
    log, sends = list(values), []
    if plant == Plant.SWAPPED:
        log[PLACE], log[PLACE + 1] = log[PLACE + 1], log[PLACE]
    for place, (value, began_ns) in enumerate(zip(values, times, strict=True)):
        at = offset + place
        if plant == Plant.SWAPPED and place in (PLACE, PLACE + 1):
            at = offset + log.index(value)
        ended_ns = began_ns + STEP_NS - 100
        sends.append(Record(Op.SEND, producer, key, value, at, Outcome.OK, began_ns, ended_ns))
    if plant in (Plant.REFUSED, Plant.UNKNOWN):
        sends[PLACE].offset = UNKNOWN
        sends[PLACE].outcome = Outcome.FAIL if plant == Plant.REFUSED else Outcome.INFO
    extra = {Plant.STORED_TWICE: values[PLACE], Plant.PHANTOM: f"phantom-{offset}"}
    if plant in extra:
        log.append(extra[plant])
    positions = list(range(CELL if plant not in extra else CELL + 1))
    if plant == Plant.LOST:
        del positions[PLACE]
    elif plant == Plant.READ_TWICE:
        positions.insert(PLACE, positions[PLACE])
    reader = _reader(shape, cell.partition)
    polls = []
    for count, position in enumerate(positions):
        at_ns = times[-1] + STEP_NS + count // POLL
        polls.append(
            Record(Op.POLL, reader, key, log[position], offset + position, Outcome.OK, at_ns, at_ns)
        )
    return sends + polls, offset + len(log)


# -- files ----------------------------------------------------------------------------------------


def line_of(record: Record) -> str:
    """As `history.jsonl.line_of`, in a fifth of the time: nothing here needs escaping."""
    value = "" if record.value is None else f'"value":"{record.value}",'
    offset = "" if record.offset == UNKNOWN else f'"offset":{record.offset},'
    began = f',"began_ns":{record.began_ns}' if record.began_ns else ""
    ended = f',"ended_ns":{record.ended_ns}' if record.ended_ns else ""
    topic, partition = record.key
    return (
        f'{{"op":"{record.op}","process":"{record.process}","key":["{topic}",{partition}],'
        f'{value}{offset}"outcome":"{record.outcome}"{began}{ended}}}\n'
    )


def write_lines(shape: Shape, path: Path) -> int:
    """Write it as JSON lines; returns the number of records."""
    written = 0
    with path.open("w", encoding="ascii") as file:
        for records in history(shape, shape.planted()):
            file.write("".join(map(line_of, records)))
            written += len(records)
    return written


def write_parquet(shape: Shape, path: Path) -> int:
    """Write it as parquet; returns the number of records."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number = pa.string(), pa.int64()
    types = {
        "op": text,
        "process": text,
        "key": pa.struct({"topic": text, "partition": pa.int32()}),
        "value": text,
        "offset": number,
        "outcome": text,
        "began_ns": number,
        "ended_ns": number,
    }
    schema = pa.schema(types)
    written = 0
    with pq.ParquetWriter(path, schema) as writer:
        for records in _several(history(shape, shape.planted())):
            columns: dict[str, list[Any]] = {
                name: [getattr(one, name) for one in records] for name in schema.names
            }
            columns["key"] = [one.key._asdict() for one in records]
            writer.write_table(pa.table(columns, schema=schema))
            written += len(records)
    return written


def _several(cells: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """Many cells at once: small row groups are slow to read."""
    gathered: list[Record] = []
    for count, records in enumerate(cells, start=1):
        gathered += records
        if count % CELLS_A_WRITE == 0:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def main(argv: Sequence[str]) -> int:
    """Write a history, and print what a checker must count, as JSON."""
    shape = Shape()
    parser = argparse.ArgumentParser(prog="pipeline.audit.generate", description=__doc__)
    parser.add_argument("out", type=Path, help="X.jsonl or X.parquet")
    for field in attrs.fields(Shape):
        parser.add_argument(f"--{field.name}", type=int, default=getattr(shape, field.name))
    options = vars(parser.parse_args(argv))
    out: Path = options.pop("out")
    shape = Shape(**options)
    write = write_parquet if out.suffix == ".parquet" else write_lines
    expected = {str(anomaly): count for anomaly, count in sorted(shape.expected().items())}
    print(json.dumps({"records": write(shape, out), "expected": expected}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
