"""Tokens survive a round trip through a record batch's header, and keep their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.records.write_tokens import (
    BATCH_END,
    CHUNK_END,
    FIRST_ID,
    Position,
    is_write_token,
    position_of,
    token_of,
    writer_id,
)

positions = st.builds(
    Position, st.integers(0, BATCH_END - 1), st.integers(0, CHUNK_END - 1), st.booleans()
)


@given(positions, st.text(), st.integers(0, 10_000))
def test_a_position_comes_back_from_the_header_s_fields(
    position: Position, query: str, writer: int
) -> None:
    token = token_of(writer_id(query, writer), position)
    assert position_of(token.epoch, token.sequence) == position
    assert 0 <= token.epoch < 1 << 15
    assert 0 <= token.sequence < 1 << 31
    assert FIRST_ID <= token.producer_id < 1 << 63
    assert is_write_token(token.producer_id)


@given(positions, positions)
def test_positions_order_as_their_tokens(one: Position, other: Position) -> None:
    first, second = token_of(FIRST_ID, one), token_of(FIRST_ID, other)
    assert (one < other) == (first < second)


@pytest.mark.parametrize("position", [(-1, 0), (BATCH_END, 0), (0, -1), (0, CHUNK_END)])
def test_numbers_that_do_not_fit_are_refused(position: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no token for chunk"):
        token_of(FIRST_ID, Position(*position, more=False))


def test_writers_have_ids_of_their_own() -> None:
    names: list[tuple[str | int, ...]] = [
        (query, writer) for query in ("a", "b") for writer in range(500)
    ]
    assert len({writer_id(*name) for name in (*names, ("a",), ("a", ""), ("", "a"))}) == 1003
    assert writer_id("a", 1) == writer_id("a", "1") != writer_id("a\0", 1)
    assert not is_write_token(1_000_000)
