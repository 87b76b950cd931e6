"""Serving applied entries that the log still has to members that are behind.

Theory of operation: a request costs the loop almost nothing. It is queued, one for each peer and
group; a newer one replaces it. One request is answered at a time: the loop looks up where the
entries are, a thread reads and checks them, and the loop sends them after everything else for that
peer (`Sender.send_bulk`), and only once the peer has taken the previous answer. After each answer
the thread rests for REST times the CPU time that it took: a node must do its own work as well,
perhaps on one core.
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
"""Bytes per answer, or one entry if it is larger."""
REST: Final = 3
"""The thread rests this many times as long as it worked: it uses at most a quarter of a core."""
REST_NS_MAX: Final = 200_000_000


class Sender(Protocol):
    def send(self, to: NodeId, message: Message) -> None: ...

    def send_bulk(self, to: NodeId, message: Message) -> None: ...

    def takes_bulk(self, to: NodeId) -> bool: ...


@attrs.frozen
class Found:
    """Where the entries are, as looked up by the loop; the other methods work in any thread."""

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
    """Requests that a newer one has replaced."""


class LogServer:
    """`reader` is the thread that reads; without one (a node without threads) the loop reads."""

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
        """Queue a peer's request for entries; `tick` answers it."""
        place = (serve.to, serve.group)
        self.statistics.asked += 1
        self.statistics.replaced += place in self._waiting
        self._waiting[place] = serve

    def forget(self, node: NodeId) -> None:
        """Drop a node's requests, because the link to it is lost: it will ask again."""
        for place in [place for place in self._waiting if place[0] == node]:
            del self._waiting[place]

    def tick(self) -> None:
        """Begin to answer the next requests, unless the thread reads or rests."""
        if not self._waiting:
            return
        now_ns = self._wal.threads.monotonic_ns()
        while self._waiting and not self._reading and now_ns >= self._rests_until_ns:
            serve = self._next()
            if serve is None:
                return
            self._serve(serve)

    def _next(self) -> ServeLog | None:
        """Take the oldest request of a peer that is ready for the answer."""
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
            return  # this node no longer has the group
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
            self._suspect(read.failure.place)  # the entries before it are intact
        elif read.failure is not None:  # no answer: as if it was lost on the way
            self._journal.error("log cannot be read", reason=str(read.failure))
        if read.entries:
            self.statistics.answered += 1
            self.links.send_bulk(serve.to, Learned(serve.group, serve.start, read.entries))


def places_of(wal: Wal, group: GroupId, start: Slot, end: Slot, bytes_max: int) -> Found:
    """The places of consecutive slots from `start` to `end`, until a gap or until `bytes_max` is
    reached; the last slot may exceed it."""
    places, size = dict[Slot, tuple[Place, int]](), 0
    for slot in map(Slot, range(start, wal.readable_to(group, start, end) + 1)):
        _, length = places[slot] = wal.find(group, slot)
        size += length
        if size >= bytes_max:
            break
    return Found(wal, places)


def read_entries(found: Found, group: GroupId, start: Slot) -> ReadEntries:
    """Read the entries at the places in `found`, of which there is at least one; in a thread."""
    threads = found.wal.threads
    began_ns, entries, failure = threads.cpu_ns(), list[Entry](), None
    try:
        for _slot, entry, _place in replay(found, group, start, max(found.places)):
            entries.append(entry)
    except (WalDamaged, StorageFailed) as error:
        failure = error
    except (NotInLog, KeyError):  # retired meanwhile: the next answer says where our log begins
        entries = []
    return ReadEntries(tuple(entries), threads.cpu_ns() - began_ns, failure)
