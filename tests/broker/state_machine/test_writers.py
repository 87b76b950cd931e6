"""The rule of write tokens, row by row; and no job can get around it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.state_machine.producer_state import Verdict
from broker.state_machine.writer_state import CHUNKS_REMEMBERED, Writers
from wire.error_codes import ErrorCode
from wire.records.write_tokens import CHUNK_END, FIRST_ID, Position, token_of

THERE = Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
OUT_OF_ORDER = Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
WRITER = FIRST_ID + 7


def there_at(offset: int) -> Verdict:
    return Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, offset)


class Story:
    """Batches of ten records."""

    def __init__(self, limit: int = 100) -> None:
        self.writers = Writers(limit)
        self.offset = 0

    def send(self, batch: int, chunk: int, *, more: bool = False, writer: int = WRITER) -> object:
        """The offset of a chunk that was appended, or the verdict on one that was not."""
        token = token_of(writer, Position(batch, chunk, more))
        verdict = self.writers.judge(*token, token.sequence + 9)
        if verdict is not None:
            return verdict
        offset = self.offset
        self.writers.appended(*token, token.sequence + 9, offset)
        self.offset += 10
        return offset


def story(*positions: tuple[int, int, bool]) -> Story:
    """A story in which these were appended."""
    one = Story()
    for batch, chunk, more in positions:
        assert isinstance(one.send(batch, chunk, more=more), int)
    return one


@pytest.mark.parametrize("batch", [0, 1, 70_000, (1 << 30) - 1])
def test_an_unknown_writer_begins_with_chunk_0_of_any_micro_batch(batch: int) -> None:
    assert Story().send(batch, 0, more=True) == 0
    assert Story().send(batch, 1) == OUT_OF_ORDER
    assert Story().send(batch, CHUNK_END - 1) == OUT_OF_ORDER


@pytest.mark.parametrize("more", [False, True])
def test_a_later_micro_batch_begins_with_chunk_0(more: bool) -> None:
    """Whether or not the one before is complete: that is not the partition's to judge. The
    partition never hears of micro-batches that have no record for it."""
    for batch in (6, 7, 1_000_000):
        assert story((5, 0, more)).send(batch, 1) == OUT_OF_ORDER
        assert story((5, 0, more)).send(batch, 0) == 10


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("chunk", [0, 1, 2, 40])
def test_what_is_earlier_is_there(more: bool, chunk: int) -> None:
    one = story((4, 0, False), (5, 0, more))
    assert one.send(4, chunk) == THERE
    assert one.send(0, chunk, more=True) == THERE


@pytest.mark.parametrize("more", [False, True])
def test_a_complete_micro_batch_is_shown_and_ends_where_it_ended(more: bool) -> None:
    """A second run that would write something else has to find out, and one with more chunks must
    not hear that they are there."""
    one = story((5, 0, True), (5, 1, False))
    for chunk in (0, 1):
        assert one.send(5, chunk, more=more) == there_at(10 * chunk)
    for chunk in (2, 3, 40):
        assert one.send(5, chunk, more=more) == OUT_OF_ORDER
    assert one.send(6, 0) == 20


def test_an_incomplete_micro_batch_is_gone_on_with_and_its_chunks_are_shown() -> None:
    one = story((5, 0, True), (5, 1, True))
    assert one.send(5, 3) == OUT_OF_ORDER
    assert one.send(5, 0, more=True) == there_at(0)
    assert one.send(5, 1, more=False) == there_at(10)
    assert one.send(5, 2, more=True) == 20
    assert one.send(5, 2, more=True) == there_at(20)
    assert one.send(5, 3) == 30
    assert one.send(5, 3) == there_at(30)
    assert one.send(5, 4) == OUT_OF_ORDER


def test_only_the_last_five_chunks_are_shown() -> None:
    one = story(*((5, chunk, True) for chunk in range(CHUNKS_REMEMBERED + 2)))
    assert [one.send(5, 0), one.send(5, 1)] == [THERE, THERE]
    for chunk in range(2, CHUNKS_REMEMBERED + 2):
        assert one.send(5, chunk) == there_at(10 * chunk)
    assert one.send(6, 0, more=True) == 10 * (CHUNKS_REMEMBERED + 2), "and none of that any more"
    assert one.send(6, 0) == there_at(10 * (CHUNKS_REMEMBERED + 2))


def test_writers_have_positions_of_their_own() -> None:
    one = story((5, 0, False))
    assert one.send(3, 0, writer=WRITER + 1) == 10
    assert one.send(5, 0) == there_at(0)
    assert one.send(3, 0, writer=WRITER + 1) == there_at(10)
    assert one.send(2, 0, writer=WRITER + 1) == THERE


def test_the_one_that_has_not_written_for_longest_is_forgotten() -> None:
    one = Story(limit=2)
    one.send(1, 0, writer=WRITER)
    one.send(1, 0, writer=WRITER + 1, more=True)
    one.send(2, 0, writer=WRITER)
    assert one.send(1, 0, writer=WRITER + 1) == there_at(10), "asking is not writing"
    one.send(1, 0, writer=WRITER + 2)
    assert len(one.writers) == 2
    assert one.send(2, 0, writer=WRITER) == there_at(20)
    assert one.send(1, 1, writer=WRITER + 1) == OUT_OF_ORDER, "it has to begin anew"


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    steps=st.lists(st.integers(0, 9), max_size=120),
    late=st.lists(st.integers(0, 1_000), max_size=60),
)
def test_each_chunk_is_appended_once_and_in_order(
    sizes: list[int], steps: list[int], late: list[int]
) -> None:
    """A job of some micro-batches, each of that many chunks. It dies at any moment and runs its
    last micro-batch again, or the one before if it had not noted the end of that. Anything it ever
    sent may arrive once more at any time (retries, and runs that were thought dead)."""
    one, arrivals = Story(), iter(late)
    sent: list[Position] = []
    log: dict[Position, object] = {}
    current, chunk = 0, 0

    def arrive(position: Position) -> bool:
        """Whether it is in the log afterwards, by the answer to the writer."""
        told = one.send(*position[:2], more=position.more)
        if isinstance(told, int):
            assert position not in log
            log[position] = told
        elif told == OUT_OF_ORDER:
            return False
        elif told != THERE:
            assert told == there_at(log[position])  # type: ignore[arg-type]
        assert position in log
        return True

    def send_next() -> None:
        nonlocal current, chunk
        if current == len(sizes):
            return
        if chunk < sizes[current]:
            sent.append(Position(current, chunk, chunk + 1 < sizes[current]))
            assert arrive(sent[-1])
            chunk += 1
        if chunk == sizes[current]:
            current, chunk = current + 1, 0

    for step in steps:
        if step == 0:
            chunk = 0  # died
        elif step == 1 and chunk == 0 and current:
            current -= 1  # died before it noted the end
        elif step == 2 and sent:
            arrive(sent[next(arrivals, 0) % len(sent)])
        else:
            send_next()
    while current < len(sizes):
        send_next()
    wanted = [
        Position(batch, chunk, chunk + 1 < size)
        for batch, size in enumerate(sizes)
        for chunk in range(size)
    ]
    assert list(log) == wanted
    assert list(log.values()) == [10 * number for number in range(len(wanted))]
