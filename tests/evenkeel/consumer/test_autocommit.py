"""When a consumer commits automatically (D10), with a clock that jumps."""

from collections.abc import Sequence
from itertools import pairwise

import trio
import trio.testing

from evenkeel.consumer.autocommit import AutoCommit
from evenkeel.errors import CommitError, EvenkeelError, TimedOutError

EVERY_S = 5.0
LATE = TimedOutError("the commit failed")


async def commits(
    until_s: float, *, rebalances: Sequence[float] = (), failures: Sequence[EvenkeelError] = ()
) -> list[float]:
    """The times at which it commits; the first commits fail."""
    began, left, at = trio.current_time(), list(failures), []

    async def commit() -> EvenkeelError | None:
        at.append(round(trio.current_time() - began, 3))
        await trio.lowlevel.checkpoint()
        return left.pop(0) if left else None

    auto = AutoCommit(EVERY_S, lambda failures: 0.1 * 2**failures, commit)
    with trio.move_on_after(until_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auto.run)
            for when in rebalances:
                await trio.sleep_until(began + when)
                auto.restart()
            await trio.sleep_forever()
    return at


async def test_it_commits_every_interval(autojump_clock: trio.testing.MockClock) -> None:
    assert await commits(16) == [5, 10, 15]


async def test_D10_an_assignment_begins_the_interval_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await commits(16, rebalances=[2, 10]) == [7, 15]


async def test_rebalances_without_an_end_do_not_put_it_off_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await commits(31, rebalances=range(2, 32, 2)) == [10, 20, 30]


async def test_D10_what_failed_is_tried_again_soon_and_then_as_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await commits(12, failures=[LATE, LATE, LATE]) == [5, 5.1, 5.3, 5.7, 10.7]


async def test_pauses_are_never_longer_than_the_interval(
    autojump_clock: trio.testing.MockClock,
) -> None:
    at = await commits(60, failures=[LATE] * 20)
    assert max(after - before for before, after in pairwise(at)) == EVERY_S


async def test_who_has_been_overtaken_by_the_group_waits_for_its_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The partitions may be another member's by now; the next assignment decides."""
    assert await commits(11, failures=[CommitError("the group has moved on")]) == [5, 10]
