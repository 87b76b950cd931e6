"""When queued commands wait for more to come, and for how long at most."""

import attrs
import pytest

from broker.proposals.group_commit import (
    BYTES_MAX,
    SMALL_BYTES,
    TOGETHER_MIN,
    WAITS_NS_MAX,
    GroupCommit,
)
from paxos.ids import MS, Now

TOGETHER = 40


@attrs.define
class Queue:
    count: int = 0
    bytes_each: int = 100

    @property
    def waiting(self) -> tuple[int, int]:
        return self.count, self.count * self.bytes_each


@attrs.define
class Bench:
    """A node's commands; time passes only when a test advances it."""

    group_commit: GroupCommit = attrs.Factory(GroupCommit)
    queue: Queue = attrs.Factory(Queue)
    boot_ns: int = 1_000 * MS

    @property
    def now(self) -> Now:
        return Now(boot_ns=self.boot_ns, wall_ns=0)

    def waits(self) -> bool:
        return self.group_commit.should_wait(self.now, [self.queue])

    def propose(self, count: int) -> None:
        self.group_commit.proposed(self.now, count)

    def answer(self, count: int) -> None:
        self.group_commit.answered(self.now, count)


@pytest.fixture
def bench() -> Bench:
    """That many were proposed together and have just been answered."""
    bench = Bench()
    bench.propose(TOGETHER)
    bench.answer(TOGETHER)
    return bench


def test_who_comes_first_never_waits() -> None:
    bench = Bench(queue=Queue(100))
    assert not bench.waits()
    bench.propose(100)
    assert not bench.waits(), "nobody knows yet that as many are answered together"


def test_few_that_are_answered_together_do_not_wait() -> None:
    bench = Bench(queue=Queue(1))
    bench.propose(TOGETHER_MIN)
    bench.answer(TOGETHER_MIN - 1)
    assert not bench.waits()
    bench.answer(1)
    assert bench.waits()


def test_those_who_were_answered_are_expected_again(bench: Bench) -> None:
    bench.queue.count = 37
    assert bench.waits()
    bench.queue.count = 38  # 95 of a hundred
    assert not bench.waits()


def test_with_those_who_were_queued_before(bench: Bench) -> None:
    """The other half of the clients is here already: now all of them are proposed together."""
    bench.propose(TOGETHER)
    bench.propose(TOGETHER)
    bench.answer(TOGETHER)
    bench.queue.count = 30
    assert bench.waits(), "the other half is under way"
    bench.boot_ns += 2 * MS
    bench.answer(TOGETHER)
    bench.queue.count = 75
    assert bench.waits()
    bench.queue.count = 76
    assert not bench.waits()


def test_who_does_not_come_back_is_waited_for_a_moment(bench: Bench) -> None:
    bench.queue.count = 1
    assert bench.waits()
    bench.boot_ns += bench.group_commit.again_ns - 1
    assert bench.waits()
    bench.boot_ns += 1
    assert not bench.waits()


@pytest.mark.parametrize(("took_ms", "patience_ms"), [(1, 1), (3, 1.8), (100, 3)])
def test_who_was_answered_late_has_longer_to_come_back(took_ms: int, patience_ms: float) -> None:
    """Where answers take long, clients are slow as well, or share the machine with us."""
    bench = Bench()
    bench.propose(TOGETHER // 2)
    bench.boot_ns += took_ms * MS // 2
    bench.propose(TOGETHER // 2)
    bench.boot_ns += took_ms * MS // 2
    bench.answer(TOGETHER)
    bench.queue.count = TOGETHER // 2
    bench.boot_ns += int(patience_ms * MS) - 1
    assert bench.waits()
    bench.boot_ns += 1
    assert not bench.waits()


def test_a_quorum_that_takes_long_is_not_waited_for(bench: Bench) -> None:
    bench.propose(TOGETHER)
    bench.queue.count = 10
    assert bench.waits()
    bench.boot_ns += WAITS_NS_MAX
    assert bench.waits()
    bench.boot_ns += 1
    assert not bench.waits()


def test_a_few_that_are_late_keep_nobody_waiting(bench: Bench) -> None:
    bench.propose(TOGETHER)
    bench.boot_ns += 2 * MS
    bench.answer(TOGETHER - 4)
    bench.queue.count = TOGETHER
    assert bench.waits(), "4 of 36 are more than a tenth"
    bench.answer(1)
    assert not bench.waits()


def test_large_commands_do_not_wait(bench: Bench) -> None:
    bench.queue.count, bench.queue.bytes_each = 8, SMALL_BYTES
    assert bench.waits()
    bench.queue.bytes_each += 1
    assert not bench.waits(), "each is large"
    bench.queue.count, bench.queue.bytes_each = 32, BYTES_MAX // 32
    assert bench.waits()
    bench.queue.bytes_each += 1
    assert not bench.waits(), "all together are"


def test_what_was_forgotten_is_not_under_way(bench: Bench) -> None:
    bench.propose(TOGETHER)
    bench.queue.count = TOGETHER
    assert bench.waits()
    bench.group_commit.forgotten(TOGETHER)
    assert not bench.waits()


def test_it_can_be_switched_off(bench: Bench) -> None:
    bench.group_commit.again_ns = 0
    bench.queue.count = 1
    assert not bench.waits()


def test_an_empty_queue_waits_for_nothing(bench: Bench) -> None:
    assert not bench.waits()
