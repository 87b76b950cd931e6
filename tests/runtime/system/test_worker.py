"""Work that waits for the disk: done in order in another thread; the loop takes the results."""

import threading
import time
from collections.abc import Iterator

import pytest

from runtime.system.worker import TAKE_NS, Worker
from storage.errors import StorageError

PATIENCE_S = 10.0


@pytest.fixture
def worker() -> Iterator[tuple[Worker, threading.Semaphore]]:
    woken = threading.Semaphore(0)
    worker = Worker("test-worker", lambda: woken.release())
    worker.start()
    yield worker, woken
    assert worker.stop()


def fails() -> None:
    raise StorageError("the disk says no")


def test_results_come_in_order_on_the_thread_that_takes_them(
    worker: tuple[Worker, threading.Semaphore],
) -> None:
    one, woken = worker
    got: list[tuple[int, bool, bool]] = []
    here = threading.get_ident()
    for number in range(3):
        one.submit(
            lambda number=number: (number, threading.get_ident() == here),
            lambda result: got.append((*result, threading.get_ident() == here)),
        )
    for _ in range(3):
        assert woken.acquire(timeout=PATIENCE_S)
    assert not got, "nothing happens on the loop before it takes it"
    assert one.jobs == 3
    one.take()
    assert got == [(number, False, True) for number in range(3)]
    assert one.jobs == 0


def test_a_refusal_goes_to_whoever_has_a_use_for_it_and_else_ends_the_node(
    worker: tuple[Worker, threading.Semaphore],
) -> None:
    one, woken = worker
    heard: list[StorageError] = []
    one.submit(fails, lambda _: pytest.fail("it failed"), heard.append)
    one.submit(fails, lambda _: pytest.fail("it failed"))
    for _ in range(2):
        assert woken.acquire(timeout=PATIENCE_S)
    with pytest.raises(StorageError, match="says no"):
        one.take()
    assert len(heard) == 1


def test_what_many_jobs_have_come_to_is_taken_in_several_rounds_and_in_order(
    worker: tuple[Worker, threading.Semaphore],
) -> None:
    """Each of them is short; together they would hold the loop."""
    one, woken = worker
    got: list[int] = []

    def costly(number: int) -> None:
        until = time.thread_time_ns() + TAKE_NS // 2
        while time.thread_time_ns() < until:
            pass
        got.append(number)

    for number in range(9):
        one.submit(lambda number=number: number, costly)
    for _ in range(9):
        assert woken.acquire(timeout=PATIENCE_S)
    rounds = 0
    while one.has_done:
        before, rounds = len(got), rounds + 1
        one.take()
        assert len(got) - before <= 3
        assert woken.acquire(blocking=False) == one.has_done
    assert rounds >= 3
    assert got == list(range(9))
    assert one.jobs == 0
