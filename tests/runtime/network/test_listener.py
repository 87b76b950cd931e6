"""Listening: connections come in, and running out of file descriptors is survivable."""

import errno
import socket
from collections.abc import Iterator

import pytest

from runtime.config.fields import Address
from runtime.network.listener import ACCEPTS_PER_ROUND_MAX, Listener, listen
from tests.runtime.doubles import GIVE_UP_MS, FakePlane, Recorder


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


class Door:
    """An open port, and the connections it has accepted."""

    def __init__(self, plane: FakePlane, recorder: Recorder) -> None:
        self.came: list[tuple[socket.socket, str]] = []
        self.listener = listen(
            plane, Address("127.0.0.1", 0), self.on_accept, 1000, recorder.journal
        )
        self.address = ("127.0.0.1", self.listener.port)

    def on_accept(self, sock: socket.socket, host: str) -> None:
        self.came.append((sock, host))

    def close(self) -> None:
        self.listener.close()
        for sock, _ in self.came:
            sock.close()


@pytest.fixture
def door(plane: FakePlane, recorder: Recorder) -> Iterator[Door]:
    door = Door(plane, recorder)
    yield door
    door.close()


def test_who_connects_is_accepted_without_blocking(plane: FakePlane, door: Door) -> None:
    with socket.create_connection(door.address):
        plane.run_until(lambda: door.came)
        ((sock, host),) = door.came
        assert host == "127.0.0.1"
        assert not sock.getblocking()


def test_a_crowd_is_let_in_over_several_rounds(plane: FakePlane, door: Door) -> None:
    """Existing connections get their turns in between."""
    count = ACCEPTS_PER_ROUND_MAX + 10
    clients = [socket.create_connection(door.address) for _ in range(count)]
    plane.round(GIVE_UP_MS)
    assert len(door.came) == ACCEPTS_PER_ROUND_MAX
    plane.run_until(lambda: len(door.came) == count)
    for client in clients:
        client.close()


def test_a_port_in_use_is_an_error(plane: FakePlane, recorder: Recorder, door: Door) -> None:
    with pytest.raises(OSError, match="in use"):
        listen(plane, Address(*door.address), door.on_accept, 5, recorder.journal)


class Exhausted:
    """A listening socket of a process that has only its reserve descriptor left."""

    def __init__(self, sock: socket.socket, failures: list[int]) -> None:
        self._sock, self._failures = sock, failures

    def accept(self) -> tuple[socket.socket, object]:
        if self._failures:
            raise OSError(self._failures.pop(), "injected")
        return self._sock.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


def exhausted(door: Door, *failures: int) -> Listener:
    door.listener._sock = Exhausted(door.listener._sock, list(failures))
    return door.listener


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_a_connection_is_refused_and_told(
    plane: FakePlane, door: Door, recorder: Recorder, number: int
) -> None:
    """It must not stay in the backlog, where it would wait and keep the loop at 100 %."""
    exhausted(door, number)
    first = socket.create_connection(door.address)
    plane.round(GIVE_UP_MS)
    assert first.recv(1) == b""
    assert door.came == []
    assert plane.ready() == []
    assert [line["refused"] for line in recorder.said("out of file descriptors: raise ulimit -n")]
    with socket.create_connection(door.address):
        plane.run_until(lambda: door.came)
    first.close()


def test_who_hangs_up_in_the_queue_is_passed_over(plane: FakePlane, door: Door) -> None:
    exhausted(door, errno.ECONNABORTED)
    with socket.create_connection(door.address):
        plane.run_until(lambda: door.came)


def test_a_connection_that_breaks_at_once_costs_nobody_else(
    plane: FakePlane, door: Door, recorder: Recorder
) -> None:
    turns = iter([OSError(errno.EINVAL, "gone"), None, None])

    def picky(sock: socket.socket, host: str) -> None:
        if (error := next(turns)) is not None:
            raise error
        door.came.append((sock, host))

    door.listener._on_accept = picky
    with socket.create_connection(door.address) as first, socket.create_connection(door.address):
        plane.run_until(lambda: door.came)
        assert first.recv(1) == b""
    assert len(recorder.said("connection lost at once")) == 1
