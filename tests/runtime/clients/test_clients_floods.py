"""Floods of clients: their memory is counted and bounded, and silent clients keep nobody out."""

import gc
import threading
import weakref

import attrs

from runtime.clients.limits import FIRST_REQUEST_S
from runtime.clients.places import RESTED_NS
from tests.runtime.clients.test_clients import MIB, SECOND_NS, Harness, closed_by_us, opened
from tests.runtime.clients.test_clients import harness as harness  # a fixture
from tests.runtime.doubles import frame, receive
from wire.framing import FrameLimits

RESTED_S = RESTED_NS // SECOND_NS

# -- memory ---------------------------------------------------------------------------------------


def test_a_large_request_is_not_read_before_there_is_room_for_all_of_it() -> None:
    """A request that has begun can be finished; small requests of others do not wait for it."""
    with opened(pending_bytes_per_node=MIB) as harness:
        first, second, small = harness.connect(), harness.connect(), harness.connect()
        whole = frame(bytes(800_000))
        first.sendall(whole[:-1])
        harness.plane.run_until(
            lambda: harness.clients.memory.frames == 800_000, harness.clients.flush
        )
        second.sendall(whole[:20_000])
        harness.plane.run_until(lambda: harness.clients.waiting, harness.clients.flush)
        assert harness.clients.memory.frames == 800_000, "counted before it is there"
        small.sendall(frame(b"small"))
        harness.until_asked(1)
        assert harness.asked[0][0] == b"small"
        first.sendall(whole[-1:])
        harness.until_asked(2)
        harness.answer(1, b"done")
        harness.clients.flush()
        second.sendall(whole[20_000:])
        harness.until_asked(3)


def test_a_connection_that_ends_gives_back_what_it_holds_at_once() -> None:
    """Also the memory of a waiting request and of unread answers, without any garbage
    collection."""
    with opened(pending_bytes_per_node=MIB) as harness:
        first, second = harness.connect(), harness.connect()
        whole = frame(bytes(800_000))
        first.sendall(whole[:-1])
        harness.plane.run_until(
            lambda: harness.clients.memory.frames == 800_000, harness.clients.flush
        )
        second.sendall(whole[:20_000])
        harness.plane.run_until(lambda: harness.clients.waiting, harness.clients.flush)
        kept = [weakref.ref(one) for one in harness.clients.connections]
        gc.disable()
        try:
            for client in (first, second):
                client.close()
            harness.clients.close_all("the test says so")
            assert [one() for one in kept] == [None, None]
        finally:
            gc.enable()
        assert not harness.clients.waiting
        assert harness.clients.memory.by_kind() == dict.fromkeys(
            harness.clients.memory.by_kind(), 0
        )


def test_who_holds_memory_and_does_not_go_on_makes_room_for_others() -> None:
    with opened(pending_bytes_per_node=MIB) as harness:
        stuck, other = harness.connect(), harness.connect()
        whole = frame(bytes(800_000))
        stuck.sendall(whole[:-1])
        harness.plane.run_until(
            lambda: harness.clients.memory.frames == 800_000, harness.clients.flush
        )
        harness.pass_seconds(5)
        assert harness.clients.memory.frames, "nobody else wants it"
        other.sendall(whole)
        harness.plane.run_until(lambda: harness.clients.waiting, harness.clients.flush)
        harness.settle()
        harness.pass_seconds(2)
        harness.until_asked(1)
        assert len(harness.clients.connections) == 1


def test_who_is_not_read_is_not_told_that_it_does_not_go_on() -> None:
    """Its request cannot arrive, because the node does not read what it sent before. Closed for
    that, it would lose an answer and send the request again."""
    with opened(pending_bytes_per_node=MIB) as harness:
        first, other = harness.connect(), harness.connect()
        whole = frame(bytes(800_000))
        first.sendall(frame(b"a batch") + whole[:100_000])
        harness.until_asked(1)
        harness.plane.run_until(
            lambda: harness.clients.memory.frames == 800_000, harness.clients.flush
        )
        harness.asked[0][1].stop_reading()
        sender = threading.Thread(target=other.sendall, args=(whole,))
        sender.start()
        harness.plane.run_until(lambda: harness.clients.waiting, harness.clients.flush)
        harness.pass_seconds(5)
        assert len(harness.clients.connections) == 2
        harness.asked[0][1].read_on()
        harness.clients.tick()
        assert len(harness.clients.connections) == 2, "it had no time yet"
        harness.asked[0][1].complete([frame(b"done")])
        first.sendall(whole[100_000:])
        harness.until_asked(2)
        harness.answer(1, b"done")
        harness.clients.flush()
        harness.until_asked(3)
        sender.join()


def test_what_was_not_taken_yet_has_come() -> None:
    """A node that is late itself does not close a connection for it."""
    with opened(pending_bytes_per_node=MIB) as harness:
        first, other = harness.connect(), harness.connect()
        whole = frame(bytes(800_000))
        first.sendall(whole[:100_000])
        harness.plane.run_until(
            lambda: harness.clients.memory.frames == 800_000, harness.clients.flush
        )
        other.sendall(whole[:20_000])
        harness.plane.run_until(lambda: harness.clients.waiting, harness.clients.flush)
        harness.settle()
        harness.clients.tick()
        first.sendall(whole[100_000:110_000])
        harness.clients.tick()
        assert harness.reasons() == []
        harness.settle()
        harness.pass_seconds(3)
        assert len(harness.clients.connections) == 1, "and then nothing more"


def test_answers_that_are_not_read_are_counted_and_stop_the_reading() -> None:
    with opened(answer_bytes_per_node=8 * MIB) as harness:
        client = harness.connect()
        client.sendall(frame(b"1") + frame(b"2"))
        harness.on_asked = lambda reply: reply.complete([frame(bytes(7 * MIB))])
        harness.until_asked(1)
        harness.settle()
        assert len(harness.asked) == 1, "the second is not asked before the first answer is read"
        room = harness.asked[0][1].room
        assert room < 2 * MIB, "less than a fourth of all"
        assert harness.clients.memory.answers > 0
        reader = threading.Thread(target=receive, args=(client, 7 * MIB + 4))
        reader.start()
        harness.until_asked(2)
        while reader.is_alive():
            harness.plane.round(10)
            harness.clients.flush()
        reader.join()


def test_an_answer_that_is_not_read_gives_way_to_others() -> None:
    with opened(answer_bytes_per_node=8 * MIB) as harness:
        client = harness.connect()
        client.sendall(frame(b"1"))
        harness.until_asked(1)
        harness.asked[0][1].complete([frame(bytes(16 * MIB))])
        harness.settle()
        harness.pass_seconds(3)
        assert not harness.clients.connections
        assert harness.clients.memory.answers == 0
        client.close()


def test_a_request_that_is_too_long_goes_by() -> None:
    """Its client gets an error in its turn, and is served on."""
    told: list[int] = []
    with opened() as harness:
        harness.clients.limits = attrs.evolve(
            harness.clients.limits, frames=FrameLimits(default=MIB, read_over_max=4 * MIB)
        )
        harness.clients.serve_over = lambda size, _kept, _owned, _host, reply: (
            told.append(size),
            reply.complete([frame(b"too long")]),
        )[0]
        client = harness.connect()
        harness.on_asked = lambda reply: reply.complete([frame(b"fine")])

        def send() -> None:
            client.sendall(
                frame(b"\0\x03abc") + frame(b"\0\x03" + bytes(2 * MIB)) + frame(b"\0\x03def")
            )

        sender = threading.Thread(target=send)
        sender.start()
        harness.until_asked(2)
        sender.join()
        harness.settle()
        assert receive(client, 8 + 12 + 8) == frame(b"fine") + frame(b"too long") + frame(b"fine")
        assert told == [2 * MIB + 2]
        assert harness.clients.memory.frames == 0


# -- silence --------------------------------------------------------------------------------------


def test_who_says_nothing_keeps_nobody_out(harness: Harness) -> None:
    """The oldest connection without a request goes, first among those of the same address."""
    silent = [harness.connect("10.0.0.2") for _ in range(5)]
    talking = harness.customer("10.0.0.1")
    newest = harness.connect("10.0.0.2")
    assert closed_by_us(silent[0])
    others = [harness.connect(f"10.0.1.{number}") for number in range(4)]
    harness.customer("10.0.0.3")
    assert closed_by_us(silent[1])
    assert harness.clients.displaced_total == 2
    talking.sendall(frame(b"still here"))
    harness.until_asked(1)
    assert len(harness.clients.connections) == 10
    assert [one.fileno() >= 0 for one in (newest, *others)]


def test_who_asked_once_and_rests_keeps_nobody_out() -> None:
    """The one that was idle for longest goes, of the address with the most connections."""
    with opened(connections_max=6, connections_per_ip_max=6) as harness:
        lone = harness.customer("10.0.0.9")
        harness.pass_seconds(1)
        crowd = [harness.customer("10.0.0.2") for _ in range(5)]
        harness.pass_seconds(RESTED_S - 3)
        crowd[0].sendall(frame(b"I am still here"))
        harness.until_asked(1)
        harness.asked.pop()[1].complete([frame(b"so are we")])
        harness.settle()
        assert closed_by_us(harness.connect("10.0.0.1")), "nobody has rested for long enough"
        harness.pass_seconds(3)
        newcomer = harness.customer("10.0.0.1")
        assert closed_by_us(crowd[1])
        assert harness.clients.displaced_total == 1
        for client in (lone, crowd[0], newcomer):
            client.sendall(frame(b"served"))
        harness.until_asked(3)


def test_who_waits_for_an_answer_does_not_rest() -> None:
    """However long a fetch or a join takes; nor is a client idle that reads no answer, or is
    sending a request."""
    with opened(connections_max=3, connections_per_ip_max=3) as harness:
        waiting, sending, resting = (harness.customer() for _ in range(3))
        waiting.sendall(frame(b"wake me"))
        harness.until_asked(1)
        sending.sendall(frame(b"half a request")[:8])
        harness.settle()
        harness.pass_seconds(RESTED_S + 1)
        harness.customer()
        assert closed_by_us(resting)
        harness.pass_seconds(1)
        assert closed_by_us(harness.connect("10.0.0.9"))
        assert harness.clients.displaced_total == 1
        harness.asked[0][1].complete([frame(b"now")])
        harness.settle()
        assert receive(waiting, 7) == frame(b"now")


def test_two_newcomers_do_not_push_each_other_out() -> None:
    """The first had no time to ask anything: a connection that was idle for long goes before it."""
    with opened(connections_max=3, connections_per_ip_max=3) as harness:
        resting = [harness.customer() for _ in range(3)]
        harness.pass_seconds(RESTED_S + 1)
        newcomers = [harness.connect() for _ in range(2)]
        for newcomer in newcomers:
            newcomer.sendall(frame(b"hello"))
        harness.until_asked(2)
        assert [closed_by_us(one) for one in resting[:2]] == [True, True]


def test_a_first_request_has_half_a_minute(harness: Harness) -> None:
    silent, talking = harness.connect(), harness.customer()
    harness.pass_seconds(FIRST_REQUEST_S + 2)
    assert closed_by_us(silent)
    assert len(harness.clients.connections) == 1
    assert talking


def test_connections_of_one_address_have_a_rate() -> None:
    with opened(connections_per_ip_per_s=2, connections_per_ip_max=9) as harness:
        for _ in range(4):
            harness.connect("10.0.0.1")
        assert closed_by_us(harness.connect("10.0.0.1"))
        harness.customer("10.0.0.2")
        harness.system.advance(SECOND_NS)
        harness.customer("10.0.0.1")


def test_few_descriptors_mean_fewer_connections(harness: Harness) -> None:
    """Those without a request go first, then the one that was silent for longest."""
    old, talking = harness.customer(), harness.customer()
    silent = harness.connect()
    harness.pass_seconds(2)
    talking.sendall(frame(b"x"))
    harness.until_asked(1)
    harness.clients.fit(1)
    assert closed_by_us(silent)
    assert closed_by_us(old)
    assert len(harness.clients.connections) == 1
    assert closed_by_us(harness.connect("10.0.0.9"))
    harness.clients.fit(1000)
    harness.customer("10.0.0.9")


def test_all_connections_are_closed_in_the_order_in_which_they_came() -> None:
    """Otherwise a simulated world would not be deterministic (seed 2000 of whole nodes)."""
    with opened(connections_per_ip_max=9) as harness:
        for _ in range(9):
            harness.connect("10.0.0.1")
        harness.settle()
        came = [one.opened_boot_ns for one in harness.clients.connections]
        assert came == sorted(came)
        assert type(harness.clients.connections) is dict, (
            "a set has the order of addresses in memory"
        )
