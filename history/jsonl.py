"""A history as JSON lines: one record per line, in UTF-8. docs/history.md describes it.

Lines in, records out: the same functions serve a file, a socket and a Spark table. The input is not
trusted: a line that is not a record is an error that names the line.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import attrs

from history.record import NO_KEY, UNKNOWN, Key, Op, Outcome, Record, problem

LINE_BYTES_MAX: Final = 1024 * 1024
RECORDS_MAX: Final = 20_000_000
"""The checker holds a history in memory: about 400 bytes per record."""
_FIELDS: Final = frozenset(field.name for field in attrs.fields(Record))
_REQUIRED: Final = frozenset({"op", "process"})

_T = TypeVar("_T")


class HistoryError(ValueError):
    """The input is not a history; the message says where and why."""


def line_of(record: Record) -> str:
    """One line, with its newline; fields at their defaults are left out."""
    line: dict[str, Any] = {"op": record.op, "process": record.process}
    if record.key != NO_KEY:
        line["key"] = record.key
    if record.value is not None:
        line["value"] = record.value
    if record.offset != UNKNOWN:
        line["offset"] = record.offset
    line["outcome"] = record.outcome
    if record.began_ns:
        line["began_ns"] = record.began_ns
    if record.ended_ns:
        line["ended_ns"] = record.ended_ns
    return json.dumps(line, separators=(",", ":")) + "\n"


def records_of(lines: Iterable[bytes], name: str) -> Iterator[Record]:
    """The records of the file `name`, line by line.

    Raises:
        HistoryError: a line is not a record, or there are too many; with the line's number.
    """
    for number, line in enumerate(lines, start=1):
        if number > RECORDS_MAX:
            raise HistoryError(f"{name}: more than {RECORDS_MAX:,} records")
        try:
            yield record_of(line)
        except (ValueError, TypeError, RecursionError) as error:
            raise HistoryError(f"{name}:{number}: not a record: {error}") from error


def record_of(line: bytes) -> Record:
    """Parse one line.

    Raises:
        ValueError, TypeError: the line is not a record.
        RecursionError: its JSON is nested too deeply.
    """
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"longer than {LINE_BYTES_MAX:,} bytes")
    found = json.loads(line)
    if not isinstance(found, dict) or not found.keys() >= _REQUIRED:
        raise ValueError(f"expected an object with {' and '.join(sorted(_REQUIRED))}")
    if not found.keys() <= _FIELDS:
        strange = ", ".join(sorted(found.keys() - _FIELDS))
        raise ValueError(f"expected the fields {', '.join(sorted(_FIELDS))}, got {strange}")
    value = found.get("value")
    record = Record(
        op=Op(_typed(found["op"], str)),
        process=_typed(found["process"], str),
        key=_key(found.get("key")),
        value=None if value is None else _typed(value, str),
        offset=_typed(found.get("offset", UNKNOWN), int),
        outcome=Outcome(_typed(found.get("outcome", Outcome.OK), str)),
        began_ns=_typed(found.get("began_ns", 0), int),
        ended_ns=_typed(found.get("ended_ns", 0), int),
    )
    wrong = problem(record)
    if wrong:
        raise ValueError(wrong)
    return record


def _key(found: object) -> Key:
    if found is None:
        return NO_KEY
    topic, partition = _typed(found, list)
    return Key(_typed(topic, str), _typed(partition, int))


def _typed(value: object, wanted: type[_T]) -> _T:
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ValueError(f"expected {wanted.__name__}, got {value!r}"[:200])
    return value
