"""What the broker needs from the shell around it; the runtime and the simulator provide it."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from broker.ordering_barriers import BARRIERS_MAX, OrderingBarriers
from broker.proposals.intake import Outcome, Pending
from paxos.entry import Buffer
from paxos.ids import GroupId, NodeId, Now, Slot
from storage.cold.format import ColdSegment
from storage.errors import StorageError

T = TypeVar("T")


class Connection:
    """What the broker remembers of a client's connection while it is open."""

    __slots__ = ("_last_refusals", "_refusals_anywhere", "barriers", "fast_paths", "refusals")

    def __init__(self) -> None:
        self.refusals = 0
        """Batches refused on it so far that the client will send again."""
        self.barriers: OrderingBarriers | None = None
        """The partitions that are blocked on it therefore; None if there are none."""
        self._last_refusals: dict[tuple[str, int], int] = {}
        """Number of the last refusal of a partition, kept after its barrier is gone."""
        self._refusals_anywhere = 0
        """Refusals up to this number: there were too many to remember their partitions."""
        self.fast_paths: list[Any] = []
        """What Produce requests of this connection look like. Only
        broker.handlers.records.produce_fast_path knows what is in it."""

    def refused(self, topic: str, index: int) -> int:
        """Raise a barrier for this partition; returns the number of the refusal."""
        self.refusals += 1
        if self.barriers is None:
            self.barriers = OrderingBarriers()
        self.barriers.refused(topic, index, self.refusals)
        if len(self._last_refusals) == BARRIERS_MAX and (topic, index) not in self._last_refusals:
            self._last_refusals.clear()
            self._refusals_anywhere = self.refusals - 1
        self._last_refusals[topic, index] = self.refusals
        return self.refusals

    def is_blocked(self, topic: str, index: int) -> bool:
        return self.barriers is not None and self.barriers.is_blocked(topic, index)

    def would_overtake(self, topic: str, index: int, refusals: int) -> bool:
        """Whether a request that came after so many refusals would overtake a later one. This
        outlives the barrier: the request may have been at another node meanwhile."""
        last = self._last_refusals.get((topic, index), self._refusals_anywhere)
        return last > refusals

    def seen(self, number: int, boot_ns: int) -> None:
        """The client could know of all refusals up to this one (see broker.ordering_barriers)."""
        if self.barriers is not None:
            self.barriers.seen(number, boot_ns)
            if not len(self.barriers):
                self.barriers = None


class Reply(Protocol):
    """One place in a connection's queue of responses, which leave in the order of the requests."""

    @property
    def connection(self) -> Connection: ...

    @property
    def room(self) -> int:
        """How many bytes of records the answer may hold: less where many answers wait unread."""

    def complete(self, chunks: list[Buffer]) -> None:
        """Answer: the whole response frame, length prefix included. At most once."""

    def nothing(self) -> None:
        """This request gets no answer at all (Produce with acks=0)."""

    def when_waited(self, hurry: Callable[[], None]) -> None:
        """Call `hurry` once another kind of request waits behind this one in the connection."""

    def produces(self, producer_id: int) -> None:
        """The connection is one of this idempotent producer's."""

    def refused(self, topic: str, index: int) -> None:
        """The answer will refuse the batch of this partition, and the client send it again: what it
        has sent behind it must not overtake it."""

    def hold_back(self, group: GroupId) -> None:
        """The group has enough waiting: read no more of this connection until it has less."""

    def stop_reading(self) -> None:
        """Read nothing more of this connection until `read_on` was called as often as this: what
        follows must not overtake what is still being looked at."""

    def read_on(self) -> None: ...

    def close(self, reason: str) -> None:
        """The request cannot be answered within the protocol: close the connection, log why."""

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection: it has given up, and may have asked others
        for something else since. Asks the kernel: not for what comes a thousand times a second."""


class Groups(Protocol):
    """The Paxos groups of this node, as far as the broker sees them."""

    def now(self) -> Now: ...

    def acting(self, group: GroupId) -> bool:
        """Whether this node may answer for the group at this very moment (lease checked now)."""

    def epoch(self, group: GroupId) -> int:
        """The lease's epoch: Kafka's leader epoch, increases with every change of master."""

    def master(self, group: GroupId) -> NodeId | None:
        """Who holds the lease as far as we know, acting or not; None where nobody does."""

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        """The nodes that keep the group's log: Kafka's replicas."""

    def alive(self) -> frozenset[NodeId]:
        """The nodes heard of lately, this one included."""

    def caught_up(self, group: GroupId) -> bool:
        """Whether this master has applied everything chosen before its time."""

    def is_current(self, group: GroupId) -> bool:
        """Whether this node is as far in the group as those that answered of late, which are a
        majority of its members: not where it is only just learning what there is."""

    def lacks_entries(self, group: GroupId) -> bool:
        """Whether this node has heard of entries that it has not applied."""

    def known_to_have_applied(self, group: GroupId, slot: Slot) -> bool:
        """Whether each of the group's members that are alive has told that it is as far as that."""

    def submit(
        self,
        group: GroupId,
        chunks: tuple[Buffer, ...],
        done: Callable[[Outcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        """Queue one command; `done` is called exactly once, perhaps before this returns.

        Where the group is being handed to another node the command is forwarded there; with
        `anywhere` it is also forwarded to the master whenever that is another node.
        """

    def take(self, group: GroupId, pending: Pending) -> bool:
        """The same for a command that is its own Pending; whether the group has so much waiting now
        that its client should be held back."""


class LogReader(Protocol):
    """The bytes of applied entries."""

    def read_span(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position` on; spans of several entries of one segment are allowed.

        Raises:
            DamagedError: if a checksum does not match.
        """


class AppliedLog(LogReader, Protocol):
    """The same, for the event loop, and for who knows what will be read next."""

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        """As `read_span`, if that needs no wait for the disk; None: call that in another thread."""

    def read_soon(self, position: int, size: int) -> None:
        """`read_span` will most likely be called with these arguments; it may be nothing."""


class ColdReader(Protocol):
    """Batches that have left the node's log: in offset order, offsets and epochs written in.

    What is there reaches from `start` to `end`; it may reach further than what this node has
    applied, and may overlap with what is in the log.
    """

    def start(self, uid: int) -> int | None:
        """The first offset; None if there is nothing of this partition."""

    def end(self, uid: int) -> int | None:
        """The offset behind the last batch; None if there is nothing of this partition."""

    def knows(self, uid: int) -> bool:
        """Whether `end` and `segments` can be told without the disk: the event loop asks first."""

    def known_end(self, uid: int) -> int | None:
        """`end`, or a little less: without the disk."""

    def read_now(self, uid: int, offset: int, bytes_max: int) -> list[memoryview] | None:
        """As `read`, if that needs no wait for the disk, perhaps of less; None: call that in
        another thread."""

    def read(self, uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        """Whole batches from the one that contains `offset` on, or the next one where that was
        compacted away; the first in any case, more as long as they fit. One or several a view.

        Raises:
            StorageError: if they cannot be read, or are not what was written.
        """

    def read_soon(self, uid: int, offset: int, bytes_max: int) -> None:
        """`read` will most likely be called with these arguments; it may be nothing."""

    def find_time(self, uid: int, timestamp_ms: int, since: int) -> int | None:
        """Base offset of the first batch, of those from the one with offset `since` on, that claims
        to hold a record of this time or later."""

    def next_latest(
        self, uid: int, since: int, until: int, seen: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """The batches that hold offsets from `since` to `until`, by the greatest times they claim,
        from the latest down, those with the same time in order: time and base offset of the one
        behind `seen`."""

    def bytes_from(self, uid: int, offset: int) -> int:
        """Bytes of the batches from the one that contains `offset` on; roughly will do, and without
        the disk."""

    def bytes_of(self, uid: int) -> int:
        """Bytes of its files, without the disk."""

    def segments(self, uid: int) -> Sequence[ColdSegment]:
        """In order."""


class NoCold:
    """A node that keeps everything in its log."""

    def start(self, uid: int) -> int | None:
        return None

    def end(self, uid: int) -> int | None:
        return None

    def knows(self, uid: int) -> bool:
        return True

    def known_end(self, uid: int) -> int | None:
        return None

    def read_now(self, uid: int, offset: int, bytes_max: int) -> list[memoryview] | None:
        raise KeyError(uid)

    def read(self, uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        return []

    def read_soon(self, uid: int, offset: int, bytes_max: int) -> None:
        pass

    def find_time(self, uid: int, timestamp_ms: int, since: int) -> int | None:
        return None

    def next_latest(
        self, uid: int, since: int, until: int, seen: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        return None

    def bytes_of(self, uid: int) -> int:
        return 0

    def bytes_from(self, uid: int, offset: int) -> int:
        return 0

    def segments(self, uid: int) -> Sequence[ColdSegment]:
        return ()


NO_COLD: Final = NoCold()


class Worker(Protocol):
    """Does jobs one after the other, where the loop does not wait for them."""

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        """What comes of the work is told on the loop, or the refusal where there is a use for it;
        what nobody has a use for ends the node."""


class BackgroundWorker(Worker, Protocol):
    """One whose jobs go through a lot without waiting for anything."""

    def rest(self) -> None:
        """Called by such a job now and then: leaves the interpreter to others."""


class Journal(Protocol):
    """Where the node says what it does, for its operator."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


class Timers(Protocol):
    def call_at(self, boot_ns: int, callback: Callable[[], None]) -> object:
        """Call back once at or soon after `boot_ns`; the returned handle cancels it."""

    def cancel(self, handle: object) -> None: ...


class LogDir(Protocol):
    """Where this node keeps its log, for whoever asks how full it is."""

    @property
    def path(self) -> str: ...

    def volume(self) -> tuple[int, int]:
        """Bytes of the file system in all, and those that can still be used.

        Raises:
            OSError: if it cannot be asked.
        """
