"""What a peer remembers of a life of which it said that its directory is an old copy.

The copy was admitted by others that were as old. It was told late, and lost power before it was
durable that it does not vote: its next life is the one in which it must be told again.
"""

import attrs
import pytest

from paxos.ids import Incarnation, NodeId
from runtime.membership.admission import Judgement
from tests.runtime.membership.test_admission import EARLY, LATE, Story, judged, life


def test_its_next_life_has_that_one_in_its_past_and_is_an_old_copy_all_the_same() -> None:
    story = Story()
    story.register(50)
    asked = story.asked()
    assert judged(asked, life(60, 40)) is Judgement.FORGETFUL
    assert judged(asked, life(61, 60)) is Judgement.FORGETFUL
    assert judged(asked, life(62, 61)) is Judgement.FORGETFUL, "for ever"
    assert judged(asked, life(63, 50)) is Judgement.KNOWN, "its real directory is back"


def test_once_it_takes_part_and_asks_no_more_it_has_taken_note() -> None:
    """Whole-node world 507: its next life registers before the first answer comes back."""
    story = Story()
    story.register(50)
    asked, node = story.asked(), NodeId(2)
    assert judged(asked, life(60, 40)) is Judgement.FORGETFUL
    asked.hear(node, life(60, 40, settled=True))
    story.register(60)
    assert judged(asked, life(61, 60)) is Judgement.KNOWN
    story.register(61)
    assert judged(asked, life(61, 60)) is Judgement.KNOWN, "asked again while others are silent"


@pytest.mark.parametrize("settled", [True, False])
def test_one_that_still_asks_has_not_taken_note_even_if_it_is_registered(settled: bool) -> None:
    """Others admitted it; they may be as old."""
    story = Story()
    story.register(50)
    asked, node = story.asked(), NodeId(2)
    assert judged(asked, life(60, 40)) is Judgement.FORGETFUL
    asked.hear(node, attrs.evolve(life(60, 40), settled=settled))
    story.register(60)
    assert judged(asked, life(61, 60)) is Judgement.FORGETFUL


def test_how_far_its_log_goes_is_not_compared_with_itself() -> None:
    """The copy was made while the same incarnation ran: only the end of the log shows it."""
    story = Story()
    story.register(50)
    asked, node = story.asked(), NodeId(2)
    for _ in range(2):
        asked.hear(node, life(50, 49, LATE, settled=True))
    assert judged(asked, life(60, 50, EARLY)) is Judgement.FORGETFUL
    for _ in range(2):  # admitted by others
        asked.hear(node, attrs.evolve(life(60, 50, EARLY, settled=True), asks=True))
    assert asked.witnessed[node] == (Incarnation(50), LATE)
    assert judged(asked, life(61, 60, EARLY)) is Judgement.FORGETFUL
    for _ in range(2):
        asked.hear(node, life(61, 60, EARLY, settled=True))
    assert asked.witnessed[node] == (Incarnation(61), EARLY)


def test_a_log_without_a_life_that_took_part_is_a_copy_however_long_it_is() -> None:
    """Whole-node world 45: two old copies one after the other. The first one took part as one that
    does not vote, and its log was the shorter one."""
    story = Story()
    story.register(50)
    asked, node = story.asked(), NodeId(2)
    for _ in range(2):
        asked.hear(node, life(50, 49, LATE, settled=True))
    assert judged(asked, life(60, 50, EARLY)) is Judgement.FORGETFUL
    for _ in range(2):
        asked.hear(node, life(60, 50, EARLY, settled=True))
    assert judged(asked, life(61, 50, EARLY + 100)) is Judgement.FORGETFUL
    assert judged(asked, life(62, 60, EARLY + 100)) is Judgement.KNOWN, "that one was put aside"


def test_a_life_before_one_that_took_part_is_a_copys() -> None:
    """The clock is behind; what took part has not been registered yet."""
    story = Story()
    story.register(50)
    asked, node = story.asked(), NodeId(2)
    for _ in range(2):
        asked.hear(node, life(70, 50, LATE, settled=True))
    assert judged(asked, life(60, 50, LATE)) is Judgement.FORGETFUL


def test_who_registers_before_it_hears_that_it_has_forgotten_is_told_again() -> None:
    story = Story()
    story.register(50)
    asked = story.asked()
    assert judged(asked, life(60, 40)) is Judgement.FORGETFUL
    story.register(60)
    assert judged(asked, life(60, 40)) is Judgement.FORGETFUL
