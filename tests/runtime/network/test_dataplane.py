"""The data plane: which callbacks run, in which order, and what a callback may do to the others."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio
from trio.testing import MockClock

from paxos.ids import MS
from runtime.network.dataplane import (
    CANCELLED_SLACK,
    READ,
    ROUND_NS,
    ROUNDS_PER_TURN_MAX,
    TICK_S,
    WRITE,
    DataPlane,
    Plane,
    Wakeup,
)
from tests.runtime.doubles import FakePlane, FakeSystemClock, unix_pair

GIVE_UP_S = 5.0


class Bugs:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, what: str, error: Exception) -> None:
        self.seen.append((what, repr(error)))


@pytest.fixture
def system() -> FakeSystemClock:
    return FakeSystemClock()


@pytest.fixture
def bugs() -> Bugs:
    return Bugs()


@pytest.fixture
def plane(system: FakeSystemClock, bugs: Bugs) -> Iterator[DataPlane]:
    plane = DataPlane(system.boot_ns, bugs)
    yield plane
    plane.close()


# -- timers ---------------------------------------------------------------------------------------


def test_timers_go_off_in_the_order_of_their_times(
    plane: DataPlane, system: FakeSystemClock
) -> None:
    """Those of one time run in the order in which they were set."""
    rung: list[str] = []
    for at_ms, name in ((30, "c"), (10, "a"), (20, "b"), (10, "a2"), (40, "not yet")):
        plane.call_at(system.boot + at_ms * MS, lambda name=name: rung.append(name))
    plane.run_timers()
    assert rung == []
    system.advance(30 * MS)
    plane.run_timers()
    assert rung == ["a", "a2", "b", "c"]
    plane.run_timers()
    assert len(rung) == 4, "a timer goes off once"


def test_a_cancelled_timer_never_goes_off(plane: DataPlane, system: FakeSystemClock) -> None:
    """Also if another timer of the same moment cancels it, and also if it has already run."""
    rung: list[str] = []
    handles: dict[str, object] = {}

    def cancels_the_next() -> None:
        rung.append("first")
        plane.cancel(handles["second"])

    handles["first"] = plane.call_at(system.boot, cancels_the_next)
    handles["second"] = plane.call_at(system.boot, lambda: rung.append("second"))
    plane.run_timers()
    plane.cancel(handles["first"])
    assert rung == ["first"]


def test_a_timer_may_set_the_next(plane: DataPlane, system: FakeSystemClock) -> None:
    """If its time has come it runs in the same round, so callers need not care."""
    rung: list[int] = []

    def again() -> None:
        rung.append(system.boot)
        plane.call_at(system.boot + (0 if len(rung) == 1 else MS), again)

    plane.call_at(system.boot, again)
    plane.run_timers()
    assert len(rung) == 2
    system.advance(MS)
    plane.run_timers()
    assert len(rung) == 3


def test_a_timer_that_fails_costs_nobody_else_theirs(
    plane: DataPlane, system: FakeSystemClock, bugs: Bugs
) -> None:
    """A timer belongs to a client's request: its bug is reported, and the other timers run."""
    rung: list[str] = []

    def fails() -> None:
        raise KeyError("a bug")

    plane.call_at(system.boot, fails)
    plane.call_at(system.boot, lambda: rung.append("other"))
    plane.run_timers()
    assert rung == ["other"]
    assert bugs.seen == [("timer", "KeyError('a bug')")]


# -- the loop -------------------------------------------------------------------------------------


async def test_ticks_come_however_quiet_the_sockets_are(
    plane: DataPlane, system: FakeSystemClock, autojump_clock: MockClock
) -> None:
    """Timers run with them, when no socket causes a round."""
    ticks: list[float] = []
    rung: list[float] = []
    plane.call_at(system.boot + 1, lambda: rung.append(trio.current_time()))
    system.advance(1)
    with trio.move_on_after(TICK_S * 5.5):
        await plane.run_ticks(lambda: ticks.append(trio.current_time()))
    assert len(ticks) == 5
    assert rung == [ticks[0]]


async def test_a_round_ends_once_however_many_sockets_were_ready(plane: DataPlane) -> None:
    """The output of a round leaves together: this is the batching of the whole node."""
    story: list[str] = []
    with unix_pair() as (one, to_one), unix_pair() as (two, to_two):
        for name, sock in (("one", one), ("two", two)):

            def ready(_events: int, name: str = name, sock: socket.socket = sock) -> None:
                story.append(name)
                sock.recv(100)

            plane.register(sock.fileno(), READ, ready)
        to_one.send(b"x")
        to_two.send(b"x")
        await one_round(plane, lambda: story.append("end"))
    assert sorted(story[:2]) == ["one", "two"]
    assert story[2:] == ["end"]
    assert plane.rounds == 1


async def test_another_thread_wakes_the_plane(plane: DataPlane) -> None:
    """The log writer has no socket: it sets an eventfd, and however often it does, there is one
    call."""
    wakeup = Wakeup()
    woken: list[int] = []

    def ready(_events: int) -> None:
        woken.append(1)
        wakeup.clear()
        wakeup.clear()  # nothing to clear is no error

    plane.register(wakeup.fd, READ, ready)
    threads = [threading.Thread(target=wakeup.set) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    await one_round(plane)
    plane.unregister(wakeup.fd)
    wakeup.close()
    assert woken == [1]


async def test_rounds_follow_while_something_waits(plane: DataPlane) -> None:
    """Without any socket being ready, and for longer than a turn; other tasks get their turns."""
    wakeup = Wakeup()
    plane.register(wakeup.fd, READ, lambda _events: wakeup.clear())
    over, wanted = trio.Event(), 2 * ROUNDS_PER_TURN_MAX

    def end_of_round() -> bool:
        if plane.rounds == wanted:
            over.set()
        return plane.rounds < wanted

    with trio.fail_after(GIVE_UP_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(plane.run, end_of_round)
            wakeup.set()
            await over.wait()
            await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    assert plane.rounds == wanted + 1, "it waits for events again"
    plane.unregister(wakeup.fd)
    wakeup.close()


async def one_round(plane: DataPlane, end: Callable[[], None] = lambda: None) -> None:
    over = trio.Event()

    def end_of_round() -> bool:
        end()
        over.set()
        return False

    with trio.fail_after(GIVE_UP_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(plane.run, end_of_round)
            await over.wait()
            nursery.cancel_scope.cancel()


async def test_who_took_long_waits_behind_the_others(
    plane: DataPlane, system: FakeSystemClock
) -> None:
    """Those that took long also share less of a round: a connection with small requests does not
    wait for them."""
    story: list[str] = []
    with ExitStack() as stack:
        wakeups = {}
        for name in ("busy1", "busy2", "quiet", "busy3"):
            wakeups[name] = wakeup = Wakeup()
            stack.callback(wakeup.close)
            wakeup.set()

            def ready(_events: int, name: str = name) -> None:
                story.append(name)
                if name == "quiet":
                    system.advance(MS // 10)
                else:
                    system.advance(2 * MS)

            plane.register(wakeup.fd, READ, ready)
        while not {"busy1", "busy2", "quiet", "busy3"} <= set(story):  # nobody is known yet
            await one_round(plane)
        story.clear()
        for _ in range(3):
            await one_round(plane, lambda: story.append("-"))
        for wakeup in wakeups.values():
            plane.unregister(wakeup.fd)
    rounds = " ".join(story).split("-")
    assert all(one.split()[:1] == ["quiet"] for one in rounds if one.strip())
    assert all(len(one.split()) <= 2 for one in rounds), "one busy socket in each round"
    assert {"busy1", "busy2", "busy3"} <= set(story), "each of them has its turn"


async def test_newcomers_who_take_long_hold_up_nobody_who_is_known(
    plane: DataPlane, system: FakeSystemClock
) -> None:
    """A hundred new connections with expensive requests would otherwise take a third of a
    second."""
    story: list[str] = []

    def ready_in(name: str, takes_ns: int) -> Callable[[int], None]:
        def ready(_events: int) -> None:
            story.append(name)
            system.advance(takes_ns)

        return ready

    with ExitStack() as stack:
        wakeups = [Wakeup() for _ in range(21)]
        for wakeup in wakeups:
            stack.callback(wakeup.close)
            wakeup.set()
        quiet, *newcomers = wakeups
        plane.register(quiet.fd, READ, ready_in("quiet", MS // 10))
        await one_round(plane)
        for wakeup in newcomers:
            plane.register(wakeup.fd, READ, ready_in("new", 2 * MS))
        story.clear()
        await one_round(plane)
        await one_round(plane)
        for wakeup in wakeups:
            plane.unregister(wakeup.fd)
    assert story.count("quiet") >= 2
    assert story.count("new") <= story.count("quiet"), "a newcomer a round"


# -- what both planes do: the real one and the one for tests --------------------------------------


class World:
    """A plane, and a way to let it make rounds until a condition holds."""

    def __init__(self, plane: Plane, run_until: Callable) -> None:
        self.plane, self.run_until = plane, run_until


@contextmanager
def real_world() -> Iterator[World]:
    clock = FakeSystemClock()
    plane = DataPlane(clock.boot_ns, Bugs())

    def run_until(condition: Callable[[], object]) -> None:
        async def main() -> None:
            over = trio.Event()

            def end_of_round() -> bool:
                if condition():
                    over.set()
                return False

            with trio.fail_after(GIVE_UP_S):
                async with trio.open_nursery() as nursery:
                    await nursery.start(plane.run, end_of_round)
                    await over.wait()
                    nursery.cancel_scope.cancel()

        trio.run(main)

    yield World(plane, run_until)
    plane.close()


@contextmanager
def fake_world() -> Iterator[World]:
    plane = FakePlane()
    yield World(plane, plane.run_until)


@pytest.fixture(params=[real_world, fake_world])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with request.param() as made:
        yield made


def test_a_socket_is_reported_until_it_is_read(world: World) -> None:
    """Level-triggered: while bytes are left in the socket, it is reported again."""
    got: list[bytes] = []
    with unix_pair() as (ours, theirs):
        world.plane.register(ours.fileno(), READ, lambda _events: got.append(ours.recv(1)))
        theirs.send(b"abc")
        world.run_until(lambda: len(got) == 3)
        world.plane.unregister(ours.fileno())
    assert got == [b"a", b"b", b"c"]


def test_only_what_was_asked_for_is_reported(world: World) -> None:
    seen: list[int] = []
    with unix_pair() as (ours, theirs), unix_pair() as (other, to_other):
        quiet: list[int] = []
        world.plane.register(other.fileno(), 0, quiet.append)
        world.plane.register(ours.fileno(), READ, seen.append)
        to_other.send(b"nobody wants this")
        world.plane.modify(ours.fileno(), WRITE)
        world.run_until(lambda: seen)
        assert set(seen) == {WRITE}
        theirs.send(b"x")
        world.plane.modify(ours.fileno(), READ | WRITE)
        world.run_until(lambda: READ | WRITE in seen)
        assert quiet == []
        world.plane.unregister(ours.fileno())
        world.plane.unregister(other.fileno())


def test_the_end_of_a_connection_is_reported_unasked(world: World) -> None:
    """HUP cannot be switched off: a socket that is not read must still act on it, or is reported
    for ever."""
    seen: list[int] = []
    with unix_pair() as (ours, theirs):
        world.plane.register(ours.fileno(), 0, seen.append)
        theirs.close()
        world.run_until(lambda: len(seen) >= 2)
        world.plane.unregister(ours.fileno())
    assert not seen[0] & (READ | WRITE)


def test_a_callback_may_unregister_whom_it_likes(world: World) -> None:
    """Itself, or another socket that is ready in the same round: that one gets no more events."""
    called: list[str] = []
    with unix_pair() as (one, to_one), unix_pair() as (two, to_two):

        def meet(name: str) -> Callable[[int], None]:
            def ready(_events: int) -> None:
                called.append(name)
                world.plane.unregister(one.fileno())
                world.plane.unregister(two.fileno())

            return ready

        world.plane.register(one.fileno(), READ, meet("one"))
        world.plane.register(two.fileno(), READ, meet("two"))
        to_one.send(b"x")
        to_two.send(b"x")
        world.run_until(lambda: called)
        world.plane.unregister(one.fileno())  # twice is once
    assert len(called) == 1


# -- what one connection may cost the others ------------------------------------------------------


def test_timers_that_were_cancelled_do_not_pile_up(
    plane: DataPlane, system: FakeSystemClock
) -> None:
    """A client may ask for a wait of weeks and give it up at once, again and again."""
    rung: list[str] = []
    plane.call_at(system.boot + MS, lambda: rung.append("kept"))
    for _ in range(10 * CANCELLED_SLACK):
        plane.cancel(plane.call_at(system.boot + 10**9 * MS, lambda: None))
    assert len(plane._timers) <= 2 * CANCELLED_SLACK
    system.advance(2 * MS)
    plane.run_timers()
    assert rung == ["kept"]


def test_a_round_ends_though_many_sockets_are_ready(
    plane: DataPlane, system: FakeSystemClock
) -> None:
    """The remaining ones come first in the next round; urgent sockets do not wait."""
    served: list[str] = []
    with ExitStack() as stack:
        for name in ("a", "b", "c", "d", "urgent"):
            ours, theirs = stack.enter_context(unix_pair(0))
            theirs.send(b"x")

            def busy(_events: int, name: str = name) -> None:
                served.append(name)
                system.advance(ROUND_NS)

            plane.register(ours.fileno(), READ, busy, urgent=name == "urgent")
        rounds: list[list[str]] = []

        def end_of_round() -> bool:
            rounds.append(served[:])
            served.clear()
            return False

        for _ in range(4):
            plane.turn(end_of_round, waits=False, linger_s=0)
    assert all("urgent" in one for one in rounds)
    assert all(len(one) <= 3 for one in rounds), "one more of those that took long"
    assert {one for served in rounds for one in served} == {"a", "b", "c", "d", "urgent"}
