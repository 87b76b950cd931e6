"""Entries of the applied log for members that are behind: what the log still has of them.

Theory of operation. A question costs the loop next to nothing: it takes its place in a queue, one
for each peer and group, where a newer one replaces it. One is answered at a time: the loop looks up
where the entries lie, a thread reads and checks them, and the loop sends them, behind everything
else that is for that peer (`Sender.send_bulk`), and only to one that has taken what it was sent
before. The thread may be busy for REST times less than it is idle, by its own CPU time: a node has
other things to do than to help, on the one core that it may have.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import attrs

from broker.ports import Worker
from paxos.entry import Entry
from paxos.ids import GroupId, NodeId, Slot
from paxos.messages import Learned, Message, Trimmed
from paxos.step import ServeLog
from runtime.system.journal import Journal
from storage.errors import NotInLog, StorageFailed, WalDamaged
from storage.format import Place
from storage.log.replay import replay
from storage.log.wal import Wal

SERVE_BYTES_MAX: Final = 256 * 1024
"""Per question, and one entry at least."""
REST: Final = 3
"""The thread rests for so many times as long as it has worked: a quarter of a core at most."""
REST_NS_MAX: Final = 200_000_000


class Sender(Protocol):
    def send(self, to: NodeId, message: Message) -> None: ...

    def send_bulk(self, to: NodeId, message: Message) -> None: ...

    def takes_bulk(self, to: NodeId) -> bool: ...


@attrs.frozen
class Found:
    """Where the entries lie, as the loop has seen it; the rest may be asked from any thread."""

    wal: Wal
    places: dict[Slot, tuple[Place, int]]

    def find(self, group: GroupId, slot: Slot) -> tuple[Place, int]:
        return self.places[slot]

    def read_span(self, position: Place, size: int) -> memoryview:
        return self.wal.read_span(position, size)

    def decode_record(self, record: memoryview, place: Place, group: GroupId, slot: Slot) -> Entry:
        return self.wal.decode_record(record, place, group, slot)


@attrs.frozen
class ReadEntries:
    entries: tuple[Entry, ...]
    took_ns: int
    failure: StorageFailed | WalDamaged | None = None


@attrs.define(eq=False)
class ServingStatistics:
    asked: int = 0
    answered: int = 0
    replaced: int = 0
    """Questions that a newer one took the place of."""


class LogServer:
    """`reader` does what reads; without one (a node that has no threads) it is done at once."""

    def __init__(self, wal: Wal, suspect: Callable[[Place], None], journal: Journal) -> None:
        self._wal, self._suspect, self._journal = wal, suspect, journal
        self.links: Sender | None = None
        self.reader: Worker | None = None
        self.applied: Callable[[GroupId], Slot | None] = lambda _group: None
        self._waiting: dict[tuple[NodeId, GroupId], ServeLog] = {}
        self._reading = False
        self._rests_until_ns = 0
        self.statistics = ServingStatistics()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ask(self, serve: ServeLog) -> None:
        """A peer would like to have entries; `tick` sees to it."""
        place = (serve.to, serve.group)
        self.statistics.asked += 1
        self.statistics.replaced += place in self._waiting
        self._waiting[place] = serve

    def forget(self, node: NodeId) -> None:
        """The link to a node is gone: it will ask again."""
        for place in [place for place in self._waiting if place[0] == node]:
            del self._waiting[place]

    def tick(self) -> None:
        """Answer the next question, if this is the moment."""
        if not self._waiting:
            return
        now_ns = self._wal.threads.monotonic_ns()
        while self._waiting and not self._reading and now_ns >= self._rests_until_ns:
            serve = self._next()
            if serve is None:
                return
            self._serve(serve)

    def _next(self) -> ServeLog | None:
        """The oldest question of somebody who has room for the answer."""
        assert self.links is not None
        for place, serve in self._waiting.items():
            if self.links.takes_bulk(serve.to):
                del self._waiting[place]
                return serve
        return None

    def _serve(self, serve: ServeLog) -> None:
        wal, group, applied = self._wal, serve.group, self.applied(serve.group)
        assert self.links is not None
        if applied is None:
            return  # not ours any more
        first = wal.slots(group).start
        if serve.start < first:
            self.links.send(serve.to, Trimmed(group, Slot(first), applied))
            return
        found = places_of(wal, group, serve.start, serve.end, SERVE_BYTES_MAX)
        if not found.places:
            return
        self._reading = True
        if self.reader is None:
            self._done(serve, read_entries(found, group, serve.start))
        else:
            work = partial(read_entries, found, group, serve.start)
            self.reader.submit(work, partial(self._done, serve))

    def _done(self, serve: ServeLog, read: ReadEntries) -> None:
        assert self.links is not None
        self._reading = False
        self._rests_until_ns = self._wal.threads.monotonic_ns() + min(
            REST * read.took_ns, REST_NS_MAX
        )
        if isinstance(read.failure, WalDamaged):
            self._suspect(read.failure.place)  # what was read before it is good
        elif read.failure is not None:  # as good as lost on the way
            self._journal.error("log cannot be read", reason=str(read.failure))
        if read.entries:
            self.statistics.answered += 1
            self.links.send_bulk(serve.to, Learned(serve.group, serve.start, read.entries))


def places_of(wal: Wal, group: GroupId, start: Slot, end: Slot, bytes_max: int) -> Found:
    """As many slots as there are without a gap, and one more than fit at most."""
    places, size = dict[Slot, tuple[Place, int]](), 0
    for slot in map(Slot, range(start, wal.readable_to(group, start, end) + 1)):
        _, length = places[slot] = wal.find(group, slot)
        size += length
        if size >= bytes_max:
            break
    return Found(wal, places)


def read_entries(found: Found, group: GroupId, start: Slot) -> ReadEntries:
    """In a thread. There is something to read."""
    threads = found.wal.threads
    began_ns, entries, failure = threads.cpu_ns(), list[Entry](), None
    try:
        for _slot, entry, _place in replay(found, group, start, max(found.places)):
            entries.append(entry)
    except (WalDamaged, StorageFailed) as error:
        failure = error
    except (NotInLog, KeyError):  # retired meanwhile: the next question is told where we begin
        entries = []
    return ReadEntries(tuple(entries), threads.cpu_ns() - began_ns, failure)
