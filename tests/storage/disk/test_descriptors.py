"""Running out of file descriptors means "later", not a failed disk."""

import errno
import os
import threading
from collections.abc import Callable

import pytest

from storage.disk.descriptors import RESERVE, Descriptors


def scarce(times: int) -> Callable[[], str]:
    """Fails that often for lack of descriptors."""
    left = [times]

    def act() -> str:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return "opened"

    return act


def test_one_of_the_reserve_is_given_up() -> None:
    descriptors = Descriptors()
    assert descriptors.fill()
    assert descriptors.have(scarce(RESERVE)) == "opened"
    assert descriptors.scarce, "the loop is told"
    descriptors.drop()


def test_the_loop_does_not_wait_for_ever() -> None:
    descriptors = Descriptors()
    descriptors.fill()
    with pytest.raises(OSError, match="too many"):
        descriptors.have(scarce(RESERVE + 1))
    descriptors.drop()


def test_a_thread_waits_until_there_is_one_again() -> None:
    descriptors = Descriptors()
    descriptors.fill()
    got: list[str] = []
    waiting = threading.Event()
    there = threading.Event()

    def act() -> str:
        if not there.is_set():
            waiting.set()
            raise OSError(errno.ENFILE, "too many open files")
        return "opened"

    thread = threading.Thread(target=lambda: got.append(descriptors.have(act)))
    thread.start()
    assert waiting.wait(10)
    there.set()
    thread.join(10)
    assert got == ["opened"]
    descriptors.drop()


def test_another_failure_is_told_at_once() -> None:
    descriptors = Descriptors()
    with pytest.raises(FileNotFoundError):
        descriptors.have(lambda: os.open("/nonexistent/file", os.O_RDONLY))
    assert not descriptors.scarce
