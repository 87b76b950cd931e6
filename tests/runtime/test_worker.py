"""Work that waits for the disk: done in order, elsewhere; what comes of it is taken on the loop."""

import threading
from collections.abc import Iterator

import pytest

from runtime.worker import Worker
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
