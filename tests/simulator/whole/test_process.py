"""Threads of a simulated process: they wait in virtual time, share a core, and end together."""

import pytest

from paxos.ids import MS
from simulator.environment.loop import Loop
from simulator.whole.process import Process, Threads
from storage.disk.threads import Empty, Full


class Bench:
    def __init__(self) -> None:
        self.loop = Loop()
        self.ends: list[BaseException | None] = []
        self.process = Process(self.loop, "p", self.ends.append)
        self.threads = Threads(self.process, lambda: self.process.now_ns())
        self.said: list[tuple[str, float]] = []

    def say(self, what: str) -> None:
        self.said.append((what, self.process.now_ns() / MS))

    def run(self, ms: float = 1_000) -> None:
        self.loop.run_until(self.loop.now_ns + int(ms * MS))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_sleepers_wake_in_the_order_of_their_times(bench: Bench) -> None:
    def sleeper(name: str, seconds: float) -> None:
        bench.threads.sleep(seconds)
        bench.say(name)

    for name, seconds in (("long", 0.02), ("short", 0.01)):
        bench.threads.thread(name, lambda n=name, s=seconds: sleeper(n, s)).start()
    bench.run()
    assert bench.said == [("short", 10.0), ("long", 20.0)]


def test_who_waits_alone_goes_on_and_nobody_is_passed_by(bench: Bench) -> None:
    """If the thread that waits is also the next one to act, it is not switched out."""

    def ticks() -> None:
        for _ in range(3):
            bench.threads.sleep(0.01)
            bench.say("tick")

    bench.loop.at(15 * MS, bench.say, "event")
    bench.loop.at(30 * MS, bench.say, "before")  # due with the third tick, and requested earlier
    bench.threads.thread("a", ticks).start()
    bench.run(25)
    assert bench.said == [("tick", 10.0), ("event", 15.0), ("tick", 20.0)], "and no further"
    bench.run()
    assert bench.said[3:] == [("before", 30.0), ("tick", 30.0)]


def test_who_waits_alone_and_is_stopped_goes_on_later(bench: Bench) -> None:
    def ticks() -> None:
        bench.process.stand_still(40 * MS)
        bench.threads.sleep(0.01)
        bench.say("tick")

    bench.threads.thread("a", ticks).start()
    bench.run()
    assert bench.said == [("tick", 40.0)]


def test_a_core_does_one_thing_at_a_time(bench: Bench) -> None:
    def busy() -> None:
        bench.process.charge(30 * MS)
        bench.say("done")

    bench.threads.thread("a", busy).start()
    bench.threads.thread("b", busy).start()
    bench.run()
    assert bench.said == [("done", 30.0), ("done", 60.0)]


def test_a_queue_hands_over_in_order_and_gives_up_in_time(bench: Bench) -> None:
    queue = bench.threads.queue()

    def reader() -> None:
        for _ in range(2):
            bench.say(queue.get())
        with pytest.raises(Empty):
            queue.get(timeout=0.5)
        bench.say("nothing more")

    bench.threads.thread("reader", reader).start()
    bench.loop.at(5 * MS, queue.put, "one")
    bench.loop.at(5 * MS, queue.put, "two")
    bench.run()
    assert bench.said == [("one", 5.0), ("two", 5.0), ("nothing more", 505.0)]


def test_a_bounded_queue_is_full(bench: Bench) -> None:
    queue = bench.threads.queue(1)
    queue.put_nowait(1)
    with pytest.raises(Full):
        queue.put_nowait(2)


def test_a_lock_is_had_by_one_and_then_by_who_waited_longest(bench: Bench) -> None:
    lock = bench.threads.lock()

    def holder(name: str) -> None:
        with lock:
            bench.say(name)
            bench.threads.sleep(0.01)

    for name in "abc":
        bench.threads.thread(name, lambda n=name: holder(n)).start()
    bench.run()
    assert bench.said == [("a", 0.0), ("b", 10.0), ("c", 20.0)]


def test_an_event_wakes_all_and_says_when_it_did_not(bench: Bench) -> None:
    event = bench.threads.event()

    def waiter(timeout: float | None) -> None:
        bench.say(str(event.wait(timeout)))

    for timeout in (None, 1.0, 0.001):
        bench.threads.thread("w", lambda t=timeout: waiter(t)).start()
    bench.loop.at(5 * MS, event.set)
    bench.run()
    assert bench.said == [("False", 1.0), ("True", 5.0), ("True", 5.0)]


def test_a_kill_ends_all_threads_wherever_they_are(bench: Bench) -> None:
    lock = bench.threads.lock()

    def worker() -> None:
        with lock:
            bench.threads.sleep(10)
            bench.say("never")

    threads = [bench.threads.thread(name, worker) for name in "ab"]
    for thread in threads:
        thread.start()
    bench.run(5)
    bench.process.kill()
    bench.run(60_000)
    assert bench.said == []
    assert bench.ends == [None]
    assert not any(thread.is_alive() for thread in threads)


def test_what_a_thread_raises_ends_its_process(bench: Bench) -> None:
    def broken() -> None:
        bench.threads.sleep(0.001)
        raise ValueError("a bug")

    def other() -> None:
        bench.threads.sleep(1)
        bench.say("never")

    bench.threads.thread("broken", broken).start()
    bench.threads.thread("other", other).start()
    bench.run(5_000)
    assert bench.said == []
    assert [repr(end) for end in bench.ends] == ["ValueError('a bug')"]


def test_who_stands_still_goes_on_later(bench: Bench) -> None:
    bench.threads.thread("a", lambda: bench.say("awake")).start()
    bench.process.stand_still(7 * MS)
    bench.run()
    assert bench.said == [("awake", 7.0)]
