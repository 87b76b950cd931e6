"""An archive by its manifests: what is valid, what is missing, what a replay writes."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.archive.logic import (
    ArchiveError,
    Gap,
    Kind,
    Piece,
    Place,
    Round,
    Span,
    counted_only,
    describe_gaps,
    differences,
    gaps,
    manifest,
    merged,
    newest_snapshot,
    pieces_of,
    read_manifest,
    rounds,
    standing,
    superseded,
)
from pipeline.archive.replay_order import EVERYTHING, Order, order_of, parser

A, B = Place("a", 0), Place("b", 1)


def span(place: Place, first: int, last: int, rows: int | None = None, checksum: int = 5) -> Span:
    rows = last + 1 - first if rows is None else rows
    return Span(place, first, last, rows, 100 * rows, checksum)


def raw(batch: int, *spans: Span, query: str = "q") -> Piece:
    return Piece(Kind.RAW, batch, batch, query, spans)


def larger(kind: Kind, first: int, last: int, *spans: Span) -> Piece:
    return Piece(kind, first, last, "q", spans)


# -- manifests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [0, 1, -1, -(1 << 63), (1 << 63) - 1])
def test_a_manifest_is_read_back(checksum: int) -> None:
    piece = raw(7, span(A, 3, 9, checksum=checksum), span(B, 0, 0))
    assert read_manifest(manifest(piece), "it") == piece


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": 1}', "cannot be read"),
        ('{"format": 2}', "has format 2, this program reads 1"),
        ('{"format": 1, "kind": "odd", "batches": [0, 0], "query": "q", "spans": []}', "'odd'"),
    ],
)
def test_a_manifest_that_is_none_of_ours_is_refused(text: str, why: str) -> None:
    with pytest.raises(ArchiveError, match=why):
        read_manifest(text, "raw-1.json")


# -- which pieces there are -----------------------------------------------------------------------


def test_pieces_stand_in_the_order_of_their_micro_batches() -> None:
    assert standing([raw(2), raw(0), raw(1)]) == [raw(0), raw(1), raw(2)]


def test_what_was_merged_does_not_stand_beside_its_merger() -> None:
    """A merging job was killed before it had removed all the merged pieces."""
    whole = larger(Kind.SORTED, 0, 2, span(A, 0, 9))
    pieces = [raw(0), raw(2), raw(3), whole, larger(Kind.LATEST, 0, 3)]
    assert standing(pieces) == [whole, raw(3)]
    assert superseded(pieces) == [raw(0), raw(2)]


def test_of_snapshots_the_newest_counts() -> None:
    old, new = larger(Kind.LATEST, 0, 3), larger(Kind.LATEST, 0, 10)
    assert newest_snapshot([new, old, raw(0)]) == new
    assert superseded([new, old]) == [old]
    assert newest_snapshot([raw(0)]) is None


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([raw(1)], "micro-batches 0 to 0 are missing \\(before raw-00000001\\)"),
        ([raw(0), raw(4)], "micro-batches 1 to 3 are missing"),
        ([larger(Kind.SORTED, 0, 3), larger(Kind.SORTED, 2, 5)], "2 to 3 are in two pieces"),
        ([raw(0), raw(1, query="other")], "more than one query \\(other, q\\)"),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(pieces: list[Piece], why: str) -> None:
    with pytest.raises(ArchiveError, match=why):
        standing(pieces)


# -- gaps -----------------------------------------------------------------------------------------


def test_offsets_that_follow_each_other_have_no_gap() -> None:
    """A partition begins anywhere, and is absent from micro-batches without its data."""
    pieces = [raw(0, span(A, 5, 9)), raw(1, span(B, 0, 3)), raw(2, span(A, 10, 10), span(B, 4, 4))]
    assert gaps(pieces) == []


def test_gaps_are_found_between_pieces_and_within_one() -> None:
    pieces = [raw(0, span(A, 0, 9)), raw(1, span(A, 12, 19)), raw(2, span(A, 20, 29, rows=7))]
    found = gaps(pieces)
    assert found == [Gap(A, 10, 12, 2), Gap(A, 20, 30, 3)]
    told = describe_gaps(found).splitlines()
    assert told[0] == "the archive has gaps: 5 offsets have no row"
    assert told[1:3] == ["  a/0: offsets 10 to 11", "  a/0: 3 between offsets 20 and 29"]
    assert "--allow-gaps" in told[-1]


def test_many_gaps_are_told_in_short() -> None:
    pieces = [raw(number, span(A, 2 * number, 2 * number)) for number in range(20)]
    told = describe_gaps(gaps(pieces)).splitlines()
    assert told[0] == "the archive has gaps: 19 offsets have no row"
    assert told[-2] == "  and 9 more"


def test_offsets_that_come_again_are_another_log() -> None:
    with pytest.raises(ArchiveError, match=r"raw-00000001 begins at offset 4, .* end at 9"):
        gaps([raw(0, span(A, 0, 9)), raw(1, span(A, 4, 12))])


# -- what a piece holds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([span(A, 0, 9)], []),
        ([], ["raw-00000000, a/0: all 10 rows are missing"]),
        ([span(A, 0, 9, rows=8)], ["raw-00000000, a/0: 8 rows instead of 10"]),
        ([span(A, 1, 10)], ["raw-00000000, a/0: offsets 1 to 10 instead of 0 to 9"]),
        ([span(A, 0, 9, checksum=6)], ["raw-00000000, a/0: another checksum: rows have changed"]),
        (
            [span(A, 0, 9), span(B, 0, 0)],
            ["raw-00000000, b/1: rows that are not in the manifest"],
        ),
    ],
)
def test_what_is_not_as_the_manifest_says_is_told(found: list[Span], why: list[str]) -> None:
    assert differences(raw(0, span(A, 0, 9)), found) == why


def test_who_has_only_counted_compares_counts() -> None:
    piece = counted_only(raw(0, span(A, 0, 9)))
    assert differences(piece, [Span(A, 0, 9, 10, 0, 0)]) == []


def test_what_is_merged_holds_what_its_parts_held() -> None:
    """A checksum is an XOR of rows' hashes: that of a whole is the XOR of its parts'."""
    pieces = [
        raw(0, span(A, 0, 9, checksum=0b1100), span(B, 7, 7, checksum=1)),
        raw(1, span(A, 12, 13, checksum=0b1010)),
    ]
    assert merged(pieces) == (
        Span(A, 0, 13, 12, 1200, 0b0110),
        Span(B, 7, 7, 1, 100, 1),
    )


# -- rounds of a replay ---------------------------------------------------------------------------


def everything(_place: Place) -> tuple[int, int]:
    return EVERYTHING


def offsets_of(found: list[Round], place: Place) -> list[int]:
    """In the order in which they are written."""
    return [
        offset
        for windows in found
        for window in windows
        if window.place == place
        for offset in range(window.start, window.end)
    ]


def test_small_pieces_are_written_together_and_large_ones_in_parts() -> None:
    pieces = [raw(0, span(A, 0, 9)), raw(1, span(A, 10, 19)), raw(2, span(A, 20, 119))]
    found = rounds(pieces, everything, rows_max=40, bytes_max=1 << 40)
    bounds = [[(window.start, window.end) for window in windows] for windows in found]
    assert bounds == [[(0, 20)], [(20, 60)], [(60, 100)], [(100, 120)]]
    assert offsets_of(found, A) == list(range(120))
    assert [len(offsets_of([one], A)) <= 40 for one in found] == [True] * len(found)


def test_bytes_bound_a_round_as_rows_do() -> None:
    found = rounds([raw(0, span(A, 0, 99))], everything, rows_max=1000, bytes_max=1000)
    assert [len(offsets_of([one], A)) for one in found] == [10] * 10


def test_only_what_is_wanted_is_planned() -> None:
    pieces = [raw(0, span(A, 0, 9), span(B, 0, 9)), raw(1, span(A, 10, 19))]
    order = Order({}, {A: (5, 12)})
    found = rounds(pieces, order.wants, rows_max=1000, bytes_max=1 << 40)
    assert (offsets_of(found, A), offsets_of(found, B)) == (list(range(5, 12)), [])
    only_b = Order({"b": "new"})
    found = rounds(pieces, only_b.wants, rows_max=1000, bytes_max=1 << 40)
    assert (offsets_of(found, A), offsets_of(found, B)) == ([], list(range(10)))
    nothing = Order({}, {})
    assert rounds(pieces, nothing.wants, rows_max=1000, bytes_max=1 << 40) == []


def test_the_pieces_of_a_round_are_those_with_its_offsets() -> None:
    pieces = [raw(0, span(A, 0, 9)), raw(1, span(B, 0, 9)), raw(2, span(A, 10, 19))]
    ((window,),) = rounds(pieces, Order({}, {A: (9, 10)}).wants, rows_max=10, bytes_max=10_000)
    assert pieces_of((window,), pieces) == [pieces[0]]
    merged_since = larger(Kind.SORTED, 0, 2, *merged(pieces))
    assert pieces_of((window,), [merged_since]) == [merged_since]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=8),
    rows_max=st.integers(1, 50),
)
def test_every_offset_is_in_one_round_in_order(
    lengths: list[tuple[int, int]], rows_max: int
) -> None:
    pieces, ends = [], {A: 3, B: 0}
    for batch, pair in enumerate(lengths):
        spans = []
        for place, length in zip((A, B), pair, strict=True):
            if length:
                spans.append(span(place, ends[place], ends[place] + length - 1))
                ends[place] += length
        pieces.append(raw(batch, *spans))
    found = rounds(pieces, everything, rows_max=rows_max, bytes_max=1 << 40)
    assert offsets_of(found, A) == list(range(3, ends[A]))
    assert offsets_of(found, B) == list(range(ends[B]))
    for windows in found:
        assert len({window.place for window in windows}) == len(windows), "one of a partition"
        assert sum(window.end - window.start for window in windows) <= rows_max


# -- the command line -----------------------------------------------------------------------------


def order(*words: str) -> Order:
    return order_of(parser().parse_args(["--from", "x", "--bootstrap", "b:1", *words]))


def test_an_order_from_the_command_line() -> None:
    given_words = order(
        *("--topic", "a=new", "--topic", "b", "--offsets", '{"a": {"0": [3, 9]}}'),
        *("--since", "2026-11-22T18:00:00", "--until", "2026-11-22T19:00:00+01:00", "--by-key"),
    )
    since = 1_795_370_400_000
    assert given_words == Order(
        {"a": "new", "b": "b"}, {A: (3, 9)}, since_ms=since, until_ms=since, by_key=True
    )
    assert given_words.wants(A) == (3, 9)
    assert given_words.wants(Place("a", 1)) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--offsets", '{"a": 3}'], "is not like"),
        (["--offsets", "nonsense"], "is not like"),
        (["--since", "yesterday"], "is not like 2026"),
        (["--name", "../up"], "letters, digits"),
    ],
)
def test_an_order_that_makes_no_sense(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        order(*words)
    assert why in capsys.readouterr().err


def test_what_makes_it_another_replay_is_told_apart() -> None:
    """`--append` and `--allow-gaps` answer questions of the first start: they may change."""
    one = Order({"a": "b"})
    assert attrs.evolve(one, append=True, allow_gaps=True).document() == one.document()
    changed = [
        attrs.evolve(one, topics={}),
        attrs.evolve(one, offsets={A: (0, 1)}),
        attrs.evolve(one, by_key=True),
        attrs.evolve(one, since_ms=3),
        attrs.evolve(one, latest_keys=True),
    ]
    assert all(other.document() != one.document() for other in changed)
