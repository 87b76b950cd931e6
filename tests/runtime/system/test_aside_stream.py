"""Writing a log line never waits for its destination."""

import io
import threading

import pytest

from runtime.system.background_stream import TEXTS_MAX, BackgroundStream
from runtime.system.journal import Journal

GIVE_UP_S = 10.0


class Hung(io.StringIO):
    """A file on a disk that hangs until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        assert self.goes_on.wait(GIVE_UP_S)
        return super().write(text)


class Refusing(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("no space left on device")


def test_lines_come_in_their_order() -> None:
    stream = io.StringIO()
    aside = BackgroundStream(stream)
    journal = Journal("info", aside)
    for number in range(100):
        journal.info("event", number=number)
    assert aside.drain(GIVE_UP_S)
    aside.end()
    lines = stream.getvalue().splitlines()
    assert [f'"number": {number}' in line for number, line in enumerate(lines)] == [True] * 100


def test_a_hung_disk_costs_lines_and_no_time() -> None:
    stream = Hung()
    aside = BackgroundStream(stream)
    journal = Journal("info", aside)
    for number in range(TEXTS_MAX + 100):
        journal.info("event", number=number)
    assert 90 <= journal.lost <= 100
    assert not aside.drain(0.01)
    stream.goes_on.set()
    assert aside.drain(GIVE_UP_S)
    aside.end()
    assert len(stream.getvalue().splitlines()) + journal.lost == TEXTS_MAX + 100


@pytest.mark.parametrize("stream", [Refusing(), io.StringIO()])
def test_a_stream_that_refuses_or_is_closed_harms_nobody(stream: io.StringIO) -> None:
    if not isinstance(stream, Refusing):
        stream.close()
    aside = BackgroundStream(stream)
    Journal("info", aside).info("event")
    assert aside.drain(GIVE_UP_S)
    aside.end()
    assert aside.lost == 1
