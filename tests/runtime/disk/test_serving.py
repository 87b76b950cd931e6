"""Requests of a peer cost the loop next to nothing, and more important work goes first."""

from collections.abc import Callable
from typing import Any

import pytest

from paxos.entry import Entry, batch
from paxos.ids import GroupId, NodeId, Slot
from paxos.messages import Learn, Learned, Message, Trimmed
from paxos.step import LearnedRecord, ServeLog
from runtime.disk import log_server as serving
from runtime.disk.log_server import LogServer
from runtime.peers import incoming, outgoing
from storage.disk.memory import MemoryDisk
from storage.disk.threads import SystemThreads
from storage.format import Place
from storage.log.wal import Wal
from tests.runtime.doubles import Recorder
from tests.runtime.links import World
from tests.runtime.links import world as world  # a fixture
from tests.storage.log_maker import start

A, B = NodeId(2), NodeId(3)
ONE, TWO = GroupId(1), GroupId(2)


class Later:
    """A thread whose jobs finish when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: object = None
    ) -> None:
        self.jobs.append(lambda: done(work()))

    def do(self) -> None:
        self.jobs.pop(0)()


class Links:
    def __init__(self) -> None:
        self.small: list[tuple[NodeId, Message]] = []
        self.bulk: list[tuple[NodeId, Message]] = []
        self.full: set[NodeId] = set()

    def send(self, to: NodeId, message: Message) -> None:
        self.small.append((to, message))

    def send_bulk(self, to: NodeId, message: Message) -> None:
        self.bulk.append((to, message))

    def takes_bulk(self, to: NodeId) -> bool:
        return to not in self.full


class Serving:
    """A log with ten entries in each of two groups, and the node's server for it."""

    def __init__(self, wal: Wal) -> None:
        self.wal, self.links, self.thread = wal, Links(), Later()
        self.suspected: list[Place] = []
        self.entries: dict[GroupId, list[Entry]] = {ONE: [], TWO: []}
        for slot in map(Slot, range(1, 11)):
            for group, entries in self.entries.items():
                entry = batch((f"{group} {slot}".encode() * 20,))
                entries.append(entry)
                wal.stage(LearnedRecord(group, slot, entry, Slot(slot - 1)))
        self.server = LogServer(wal, self.suspected.append, Recorder().journal)
        self.server.links, self.server.reader = self.links, self.thread
        self.server.applied = lambda _group: Slot(10)

    def ask(self, to: NodeId, group: GroupId, start: int = 1, end: int = 10) -> None:
        self.server.ask(ServeLog(to, group, Slot(start), Slot(end)))


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Serving:
    monkeypatch.setattr(serving, "REST", 0)
    return Serving(start(MemoryDisk())[0])


def test_the_loop_reads_nothing_and_the_thread_everything(one: Serving) -> None:
    one.ask(A, ONE, 3, 7)
    one.server.tick()
    assert one.links.bulk == []
    one.thread.do()
    ((to, learned),) = one.links.bulk
    assert isinstance(learned, Learned)
    assert (to, learned.start) == (A, 3)
    assert [b"".join(entry.chunks) for entry in learned.entries] == [
        b"".join(entry.chunks) for entry in one.entries[ONE][2:7]
    ]


def test_of_a_peer_and_group_the_newest_question_is_answered_and_no_other(one: Serving) -> None:
    """14,959 answers in one round: the same question used to be served as often as it came."""
    for first in range(1, 6):
        for _ in range(100):
            one.ask(A, ONE, first)
    assert one.server.waiting == 1
    one.server.tick()
    one.thread.do()
    one.server.tick()
    ((_, learned),) = one.links.bulk
    assert isinstance(learned, Learned)
    assert learned.start == 5
    assert not one.thread.jobs


def test_one_is_read_at_a_time_in_the_order_they_came(one: Serving) -> None:
    one.ask(A, ONE)
    one.ask(B, ONE)
    one.ask(A, TWO)
    answered = []
    while one.server.waiting or one.thread.jobs:
        one.server.tick()
        assert len(one.thread.jobs) == 1
        one.thread.do()
        to, learned = one.links.bulk[-1]
        answered.append((to, learned.group))
    assert answered == [(A, ONE), (B, ONE), (A, TWO)]


def test_who_has_not_taken_what_it_was_sent_is_passed_over(one: Serving) -> None:
    one.ask(A, ONE)
    one.ask(B, ONE)
    one.links.full.add(A)
    one.server.tick()
    one.thread.do()
    one.server.tick()
    assert [to for to, _ in one.links.bulk] == [B]
    assert one.server.waiting == 1
    one.links.full.clear()
    one.server.tick()
    one.thread.do()
    assert [to for to, _ in one.links.bulk] == [B, A]


def test_an_answer_is_bounded_in_bytes_and_holds_one_entry_at_least(
    one: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = one.entries[ONE][0].size
    for most, entries in ((1, 1), (size + 1, 2), (10**9, 10)):
        monkeypatch.setattr(serving, "SERVE_BYTES_MAX", most)
        one.ask(A, ONE)
        one.server.tick()
        one.thread.do()
        (_, learned) = one.links.bulk[-1]
        assert isinstance(learned, Learned)
        assert len(learned.entries) == entries


def test_the_thread_rests_when_it_has_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, now = MemoryDisk(), [10**9]
    disk.threads = threads = SystemThreads()
    monkeypatch.setattr(threads, "monotonic_ns", lambda: now[0])
    one = Serving(start(disk)[0])
    one.ask(A, ONE)
    one.server.tick()
    read = one.thread.jobs.pop()
    took_ns = 1_000_000
    monkeypatch.setattr(threads, "cpu_ns", iter((0, took_ns)).__next__)
    read()
    one.ask(A, TWO)
    for rested_ns in (0, serving.REST * took_ns - 1):
        now[0] = 10**9 + rested_ns
        one.server.tick()
        assert not one.thread.jobs
    now[0] = 10**9 + serving.REST * took_ns
    one.server.tick()
    assert one.thread.jobs


def test_a_group_that_is_gone_and_a_link_that_is_lost_are_answered_nothing(one: Serving) -> None:
    one.server.applied = lambda _group: None
    one.ask(A, ONE)
    one.server.tick()
    one.ask(B, TWO)
    one.server.forget(B)
    one.server.tick()
    assert not one.thread.jobs
    assert one.server.waiting == 0


# -- the link -------------------------------------------------------------------------------------


def learned(size: int) -> Learned:
    return Learned(ONE, Slot(1), (batch((bytes(size),)),))


def test_what_is_small_overtakes_bulk(world: World) -> None:
    """A heartbeat that is sent after megabytes of catching up arrives before most of them."""
    world.join(1, 2)
    world.settle()
    pieces = 40
    for _ in range(pieces):
        world[1].peers.send_bulk(A, learned(outgoing.BULK_AHEAD_BYTES))
    world[1].peers.flush()
    world[1].peers.send(A, Learn(TWO, Slot(77)))
    world.settle()
    order = [type(message) for _, message in world[2].handler.messages]
    assert order.count(Learned) == pieces
    assert order.index(Learn) <= 3, "one piece is with the kernel, and one may be on its way"


def test_bulk_that_waits_is_bounded_and_goes_with_its_link(world: World) -> None:
    world.join(1, 2)
    world.settle()
    link = world[1].link(2)
    large = outgoing.BULK_BYTES_MAX // 4
    for _ in range(20):
        world[1].peers.send_bulk(A, learned(large))
    assert link.dropped > 10
    assert not link.takes_bulk
    assert link.channel is not None
    link.channel.close("a test")
    assert not link.takes_bulk
    world.connect(1, 2)
    assert link.takes_bulk
    world.settle()
    assert not world[2].handler.messages


def test_a_peer_has_so_much_time_in_a_round_and_the_rest_of_its_frame_comes_in_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand small questions fit in a frame; other peers are served between them."""
    monkeypatch.setattr(incoming, "PEER_ROUND_NS", -1)
    world.join(1, 2)
    world.settle()
    count = 10 * incoming.LOOK_EVERY
    for slot in range(1, count + 1):
        world[1].peers.send(A, Learn(ONE, Slot(slot)))
    world[1].peers.flush()
    heard, seen = world[2].handler.messages, [0]
    while len(heard) < count:
        world.plane.round()
        world.flush()
        assert len(heard) - seen[-1] <= 2 * incoming.LOOK_EVERY
        seen.append(len(heard))
    assert [message.applied for _, message in heard] == list(range(1, count + 1)), "in order"


def test_a_log_that_begins_later_is_told_at_once(one: Serving) -> None:
    one.wal.skip(ONE, Slot(50))
    one.ask(A, ONE)
    one.server.tick()
    ((to, trimmed),) = one.links.small
    assert isinstance(trimmed, Trimmed)
    assert (to, trimmed.first) == (A, 51)
    assert not one.thread.jobs
