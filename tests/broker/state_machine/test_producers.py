"""The rules of idempotent producers, one by one."""

import pytest

from broker.state_machine.producer_state import (
    BATCHES_REMEMBERED,
    IN_FLIGHT_RECORDS_MAX,
    SEQUENCES,
    Producers,
    Verdict,
)
from wire.error_codes import ErrorCode

LAST_SEQUENCE = SEQUENCES - 1


class Story:
    """Batches of one record, or of as many as given, at offsets that count up."""

    def __init__(self, limit: int = 100) -> None:
        self.producers = Producers(limit)
        self.offset = 0

    def send(self, first: int, last: int | None = None, *, pid: int = 1, epoch: int = 0) -> object:
        """The offset of a batch that was appended, or the verdict on one that was not."""
        last = first if last is None else last
        verdict = self.producers.judge(pid, epoch, first, last)
        if verdict is not None:
            return verdict
        offset = self.offset
        self.producers.appended(pid, epoch, first, last, offset)
        self.offset += (last - first) % SEQUENCES + 1
        return offset


def error(code: ErrorCode) -> Verdict:
    return Verdict(code, -1)


def duplicate_of(offset: int) -> Verdict:
    return Verdict(ErrorCode.NONE, offset)


OUT_OF_ORDER = error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
LONG_KNOWN = error(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def test_the_next_number_is_appended_a_gap_is_not() -> None:
    story = Story()
    assert story.send(0, 2) == 0
    assert story.send(3) == 3
    assert story.send(5) == OUT_OF_ORDER
    assert story.send(4) == 4


def test_each_of_the_last_five_batches_is_known_by_its_first_offset() -> None:
    story = Story()
    for sequence in range(BATCHES_REMEMBERED + 1):
        story.send(sequence)
    for sequence in range(1, BATCHES_REMEMBERED + 1):
        assert story.send(sequence) == duplicate_of(sequence)
    assert story.send(0) == LONG_KNOWN


def test_only_what_was_certainly_appended_is_called_a_duplicate() -> None:
    """The producer was known earlier, in a former topic of this name."""
    story, base = Story(), IN_FLIGHT_RECORDS_MAX
    story.send(base + 10, base + 19)
    assert story.send(base, base + 9) == OUT_OF_ORDER
    assert story.send(base + 5, base + 12) == OUT_OF_ORDER
    assert story.send(base + 12, base + 14) == LONG_KNOWN  # cut differently, but all of it is here
    assert story.send(base + 15, base + 24) == OUT_OF_ORDER


def test_sequences_wrap_around() -> None:
    story = Story()
    assert story.send(LAST_SEQUENCE - 1) == 0
    assert story.send(LAST_SEQUENCE, 1) == 1
    assert story.send(2) == 4
    assert story.send(LAST_SEQUENCE, 1) == duplicate_of(1)
    assert story.send(LAST_SEQUENCE) == LONG_KNOWN
    assert story.send(4) == OUT_OF_ORDER


def test_epochs_fence_and_begin_at_zero() -> None:
    story = Story()
    story.send(0, 9, epoch=3)
    assert story.send(10, epoch=2) == error(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert story.send(10, epoch=4) == OUT_OF_ORDER
    assert story.send(0, epoch=4) == 10
    assert story.send(10, epoch=3) == error(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert story.send(0, epoch=4) == duplicate_of(10)
    assert story.send(0, 9, epoch=4) == OUT_OF_ORDER, "what the old epoch sent is forgotten"


@pytest.mark.parametrize(
    ("first", "epoch"), [(0, 0), (0, 3), (IN_FLIGHT_RECORDS_MAX, 0), (LAST_SEQUENCE, 5)]
)
def test_an_unknown_producer_begins_at_zero_or_where_nothing_can_be_missing(
    first: int, epoch: int
) -> None:
    assert Story().send(first, epoch=epoch) == 0


def test_the_second_batch_does_not_overtake_the_first() -> None:
    """The first was refused by a node that was not yet master; the second came when it was."""
    story = Story()
    assert story.send(3, 4) == OUT_OF_ORDER
    assert story.send(0, 2) == 0
    assert story.send(3, 4) == 3


def test_where_somebody_was_forgotten_the_unknown_may_begin_anywhere() -> None:
    story = Story(limit=1)
    story.send(0, pid=1)
    story.send(0, pid=2)
    assert story.send(1, pid=1) == 2, "it goes on where nobody remembers it"


def test_over_the_limit_the_producer_that_was_silent_for_longest_is_forgotten() -> None:
    story = Story(limit=2)
    story.send(0, pid=1)
    story.send(0, pid=2)
    story.send(1, pid=1)
    story.send(0, pid=3)
    assert len(story.producers) == 2
    assert story.send(1, pid=1) == duplicate_of(2)
    assert story.send(0, pid=2) == 4, "nobody remembers it"
