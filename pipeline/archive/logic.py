"""What an archive is: pieces that follow each other, and the contents of each.

A *piece* is what was written in one go: the rows of one micro-batch ("raw"), or those of several,
merged and sorted ("sorted"). It counts once its *manifest* exists. That is a small file, written
last: it says which micro-batches the piece has and, for every partition of a topic, which offsets,
how many rows, and their checksum. So an archive has a gap where a micro-batch has no piece, and
where the offsets of a partition do not continue.

Pure: `store` reads and writes.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import attrs

FORMAT: Final = 1
"""Version of a manifest."""
SHOWN_MAX: Final = 10
"""At most this many gaps are listed one by one."""


class ArchiveError(Exception):
    """An archive that is not whole, or does not fit a job; the message says what to do."""


class Kind(StrEnum):
    RAW = "raw"
    SORTED = "sorted"
    LATEST = "latest"
    """The last row of every key up to a micro-batch: kept beside the archive, not a part of it."""


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@attrs.frozen
class Span:
    """The rows of one partition in a piece."""

    place: Place
    first: int
    last: int
    """Offsets of the first and the last row."""
    rows: int
    size: int
    """Bytes of keys and values."""
    checksum: int
    """XOR over the rows of a 64-bit hash of all their columns."""


@attrs.frozen
class Piece:
    kind: Kind
    first: int
    last: int
    """Its first and last micro-batch."""
    query: str
    """Spark's id of the query that ran the micro-batches: that of the checkpoint."""
    spans: tuple[Span, ...]

    @property
    def name(self) -> str:
        if self.kind is Kind.RAW:
            return f"raw-{self.last:08}"
        return f"{self.kind}-{self.first:08}-{self.last:08}"

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.spans)


# -- manifests ------------------------------------------------------------------------------------


def manifest(piece: Piece) -> str:
    """The text of a piece's manifest."""
    spans = [
        {
            "topic": span.place.topic,
            "partition": span.place.partition,
            "first": span.first,
            "last": span.last,
            "rows": span.rows,
            "bytes": span.size,
            "checksum": f"{span.checksum & (1 << 64) - 1:016x}",
        }
        for span in sorted(piece.spans, key=lambda span: span.place)
    ]
    document = {
        "format": FORMAT,
        "kind": piece.kind.value,
        "batches": [piece.first, piece.last],
        "query": piece.query,
        "spans": spans,
    }
    return json.dumps(document, indent=1) + "\n"


def read_manifest(text: str, name: str) -> Piece:
    """A piece, from the text of its manifest; `name` is for the error message.

    Raises:
        ArchiveError: it is not a manifest, or of a newer version.
    """
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ArchiveError(
                f"manifest {name} has format {document['format']}, this program reads {FORMAT}: "
                "use the version that wrote it"
            )
        first, last = document["batches"]
        kind, query = Kind(document["kind"]), str(document["query"])
        return Piece(kind, first, last, query, tuple(map(_span, document["spans"])))
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(
            f"manifest {name} cannot be read ({error!r}): restore it, or remove it and run the "
            "archive job again with the checkpoint from before that micro-batch"
        ) from error


def _span(row: Mapping[str, Any]) -> Span:
    checksum = int(row["checksum"], 16)
    return Span(
        Place(row["topic"], row["partition"]),
        row["first"],
        row["last"],
        row["rows"],
        row["bytes"],
        checksum - (1 << 64) if checksum >> 63 else checksum,
    )


# -- which pieces there are -----------------------------------------------------------------------


def standing(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces that together are the archive, in order. A piece whose micro-batches another one
    also has is left out: it was merged, and is about to be removed.

    Raises:
        ArchiveError: a micro-batch is missing, or two queries have written here.
    """
    archived = [piece for piece in pieces if piece.kind is not Kind.LATEST]
    queries = sorted({piece.query for piece in archived})
    if len(queries) > 1:
        raise ArchiveError(
            f"the archive was written by more than one query ({', '.join(queries)}): the numbers "
            "of their micro-batches mean different rows; keep an archive to one checkpoint"
        )
    chosen: list[Piece] = []
    following = 0
    for piece in sorted(archived, key=lambda one: (one.first, -one.last)):
        if piece.last < following:
            continue
        if piece.first != following:
            lost = (
                f"micro-batches {following} to {piece.first - 1} are missing"
                if piece.first > following
                else f"micro-batches {piece.first} to {following - 1} are in two pieces"
            )
            raise ArchiveError(
                f"the archive is not whole: {lost} (before {piece.name}): restore their manifests "
                "and data, or archive the topics anew into another directory"
            )
        chosen.append(piece)
        following = piece.last + 1
    return chosen


def superseded(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces whose rows are in other pieces of the archive, and old snapshots: removable."""
    pieces = list(pieces)
    kept = {piece.name for piece in standing(pieces)}
    latest = newest_snapshot(pieces)
    if latest is not None:
        kept.add(latest.name)
    return [piece for piece in pieces if piece.name not in kept]


def newest_snapshot(pieces: Iterable[Piece]) -> Piece | None:
    found = [piece for piece in pieces if piece.kind is Kind.LATEST]
    return max(found, key=lambda piece: piece.last, default=None)


# -- gaps -----------------------------------------------------------------------------------------


@attrs.frozen
class Gap:
    """Offsets of a partition that have no row. A gap between two pieces has an exact place; within
    a piece the manifest only says how many are missing."""

    place: Place
    start: int
    end: int
    """The first offset after the gap."""
    missing: int

    def __str__(self) -> str:
        if self.missing == self.end - self.start:
            return f"{self.place}: offsets {self.start} to {self.end - 1}"
        return f"{self.place}: {self.missing} between offsets {self.start} and {self.end - 1}"


def gaps(pieces: Sequence[Piece]) -> list[Gap]:
    """The places where the rows of pieces in order do not follow each other. Records deleted from a
    topic before it was first archived are no gap: a partition begins at its first row.

    Raises:
        ArchiveError: a piece begins below the end of an earlier one.
    """
    found = []
    following: dict[Place, int] = {}
    for piece in pieces:
        for span in piece.spans:
            expected = following.get(span.place, span.first)
            if span.first < expected:
                raise ArchiveError(
                    f"{span.place}: {piece.name} begins at offset {span.first}, though the pieces "
                    f"before it end at {expected - 1}: the topic was deleted and created again, or "
                    "its log was lost; archive the new topic into another directory"
                )
            if span.first > expected:
                missing = span.first - expected
                found.append(Gap(span.place, expected, span.first, missing))
            following[span.place] = end = span.last + 1
            if span.rows < end - span.first:
                missing = end - span.first - span.rows
                found.append(Gap(span.place, span.first, end, missing))
    return found


def describe_gaps(found: Sequence[Gap]) -> str:
    """The gaps in words, for the error message."""
    lines = [f"  {gap}" for gap in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        lines.append(f"  and {len(found) - SHOWN_MAX} more")
    total = sum(gap.missing for gap in found)
    return "\n".join(
        [
            f"the archive has gaps: {total:,} offsets have no row",
            *lines,
            "Compacted topics and aborted transactions leave such gaps, and so does reading with "
            "failOnDataLoss=false; allow them with --allow-gaps",
        ]
    )


def differences(piece: Piece, found: Iterable[Span]) -> list[str]:
    """Where the data of a piece differs from its manifest, in words."""
    told = {span.place: span for span in piece.spans}
    there = {span.place: span for span in found}
    return [
        f"{piece.name}, {place}: {_in_words(told.get(place), there.get(place))}"
        for place in sorted(told.keys() | there.keys())
        if told.get(place) != there.get(place)
    ]


def _in_words(told: Span | None, there: Span | None) -> str:
    if told is None:
        return "rows that are not in the manifest"
    if there is None:
        return f"all {told.rows:,} rows are missing"
    if there.rows != told.rows:
        return f"{there.rows:,} rows instead of {told.rows:,}"
    if (there.first, there.last) != (told.first, told.last):
        was = f"{told.first} to {told.last}"
        return f"offsets {there.first} to {there.last} instead of {was}"
    return "another checksum: rows have changed"


def counted_only(piece: Piece) -> Piece:
    """Without sizes and checksums: for callers that only counted the rows, which is faster."""
    spans = tuple(attrs.evolve(span, size=0, checksum=0) for span in piece.spans)
    return attrs.evolve(piece, spans=spans)


def merged(pieces: Sequence[Piece]) -> tuple[Span, ...]:
    """The spans of a piece that merges these pieces, which are in order."""
    by_place: dict[Place, list[Span]] = defaultdict(list)
    for piece in pieces:
        for span in piece.spans:
            by_place[span.place].append(span)
    return tuple(
        Span(
            place,
            spans[0].first,
            spans[-1].last,
            sum(span.rows for span in spans),
            sum(span.size for span in spans),
            _xor(span.checksum for span in spans),
        )
        for place, spans in sorted(by_place.items())
    )


def _xor(numbers: Iterable[int]) -> int:
    result = 0
    for number in numbers:
        result ^= number
    return result


# -- rounds of a replay ---------------------------------------------------------------------------


class Window(NamedTuple):
    """Offsets of one partition: from `start` up to `end`, exclusive."""

    place: Place
    start: int
    end: int


Round = tuple[Window, ...]
"""What a replay writes at once, under one write token; at most one window per partition."""


def rounds(
    pieces: Sequence[Piece],
    wanted: Callable[[Place], tuple[int, int] | None],
    *,
    rows_max: int,
    bytes_max: int,
) -> list[Round]:
    """The rows of pieces in order, in rounds of about this many rows and bytes. `wanted` returns
    the offsets of a partition [start, end) to take; None: none of it.

    A partition's windows follow each other, so rounds in order keep the order of its rows.
    """
    found: list[Round] = []
    current: dict[Place, Window] = {}
    rows = size = 0.0
    for span in (span for piece in pieces for span in piece.spans):
        for part in _parts(span, wanted(span.place), rows_max, bytes_max):
            share = _share(part, span)
            rows += span.rows * share
            size += span.size * share
            if current and (rows > rows_max or size > bytes_max):
                found.append(tuple(current.values()))
                current, rows, size = {}, span.rows * share, span.size * share
            start = current.get(part.place, part).start
            current[part.place] = part._replace(start=start)
    if current:
        found.append(tuple(current.values()))
    return found


def _share(window: Window, span: Span) -> float:
    """The window's part of the span, assuming that rows are spread evenly over the offsets."""
    return (window.end - window.start) / (span.last + 1 - span.first)


def _parts(
    span: Span, bounds: tuple[int, int] | None, rows_max: int, bytes_max: int
) -> Iterator[Window]:
    """The wanted part of a span, in windows of equally many offsets, each of which fits a round."""
    if bounds is None:
        return
    whole = Window(span.place, max(span.first, bounds[0]), min(span.last + 1, bounds[1]))
    length = whole.end - whole.start
    if length <= 0:
        return
    share = _share(whole, span)
    needed = max(span.rows * share / rows_max, span.size * share / bytes_max, 1.0)
    step = max(1, int(length / needed))
    for start in range(whole.start, whole.end, step):
        yield Window(span.place, start, min(start + step, whole.end))


def pieces_of(windows: Round, pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces that may have rows of these windows."""
    bounds = {window.place: window for window in windows}
    return [
        piece
        for piece in pieces
        if any(
            span.place in bounds
            and span.first < bounds[span.place].end
            and bounds[span.place].start <= span.last
            for span in piece.spans
        )
    ]
