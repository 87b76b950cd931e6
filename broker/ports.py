"""What the broker needs from the shell around it; the runtime and the simulator provide it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.client_software import OTHER, ClientSoftware
from broker.leaders_told import LeadersTold
from broker.ordering_barriers import BARRIERS_MAX, OrderingBarriers
from broker.proposals.intake import Outcome, Pending
from broker.security.listeners import DEFAULT, ClientListener
from broker.security.principal import ANONYMOUS, Principal
from broker.security.session import Session
from paxos.entry import Buffer
from paxos.ids import GroupId, NodeId, Now, Slot
from storage.cold.format import ColdSegment
from storage.errors import StorageError

T = TypeVar("T")


class Connection:
    """What the broker remembers of a client's connection while it is open."""

    __slots__ = (
        "_last_refusals",
        "_refusals_anywhere",
        "barriers",
        "certified",
        "fast_paths",
        "leaders_told",
        "listener",
        "principal",
        "refusals",
        "session",
        "software",
    )

    def __init__(self, listener: ClientListener = DEFAULT) -> None:
        self.listener = listener
        """The listener that it came by: its client is told the addresses of that one."""
        self.principal: Principal = ANONYMOUS
        """Who its client has proved to be; what it may do depends on it."""
        self.certified: Principal | None = None
        """Whom the certificate proves that TLS has verified; None without one."""
        self.session: Session | None = Session() if listener.protocol.sasl else None
        """How far it has come with SASL; None: its listener asks for none."""
        self.software: ClientSoftware = OTHER
        """The client's library, as far as it has named it on this connection."""
        self.leaders_told: LeadersTold | None = None
        """None: it was told of none, or of none that had moved."""
        self.refusals = 0
        """Batches refused on it so far that the client will retry."""
        self.barriers: OrderingBarriers | None = None
        """The partitions that are therefore blocked on it; None if there are none."""
        self._last_refusals: dict[tuple[str, int], int] = {}
        """Number of a partition's last refusal, kept after its barrier is gone."""
        self._refusals_anywhere = 0
        """Refusals up to this number apply to all partitions: there were too many to remember
        which."""
        self.fast_paths: list[Any] = []
        """What Produce requests of this connection look like; only
        broker.handlers.records.produce_fast_path knows its contents."""

    def misses_move(self, topic: str, moved_ns: int, now_ns: int) -> bool:
        """Whether its client may not know of a move yet, if no answer tells it (ADR 50)."""
        told = self.leaders_told
        return moved_ns > 0 and (told is None or told.misses(topic, moved_ns, now_ns))

    def refused(self, topic: str, index: int) -> int:
        """Raise a barrier for this partition; return the number of the refusal."""
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
        """Whether a request that came after this many refusals would overtake a refused one. This
        outlives the barrier: the request may have been at another node in the meantime."""
        last = self._last_refusals.get((topic, index), self._refusals_anywhere)
        return last > refusals

    def seen(self, number: int, boot_ns: int) -> None:
        """The client could know of all refusals up to this one (see broker.ordering_barriers)."""
        if self.barriers is not None:
            self.barriers.seen(number, boot_ns)
            if not len(self.barriers):
                self.barriers = None


class Reply(Protocol):
    """One slot in a connection's queue of responses, which leave in the order of the requests."""

    @property
    def connection(self) -> Connection: ...

    @property
    def room(self) -> int:
        """How many bytes of records the answer may hold: fewer where many answers wait unread."""

    def complete(self, chunks: list[Buffer]) -> None:
        """Answer: the whole response frame, length prefix included. At most once."""

    def nothing(self) -> None:
        """Send no answer to this request at all (Produce with acks=0)."""

    def when_waited(self, hurry: Callable[[], None]) -> None:
        """Call `hurry` once another kind of request waits behind this one on the connection."""

    def produces(self, producer_id: int) -> None:
        """The connection belongs to this idempotent producer."""

    def refused(self, topic: str, index: int) -> None:
        """The answer will refuse this partition's batch, and the client will retry: whatever it
        sent after the batch must not overtake it."""

    def hold_back(self, group: GroupId) -> None:
        """The group's queue is full enough: read no more of this connection until it is shorter."""

    def stop_reading(self) -> None:
        """Read nothing more of this connection until `read_on` has been called as often as this:
        what follows must not overtake what is still being checked."""

    def read_on(self) -> None: ...

    def mute(self, until_boot_ns: int) -> None:
        """Read nothing more of this connection before then: its client has used up a quota."""

    def close(self, reason: str) -> None:
        """The request cannot be answered within the protocol: close the connection and log why."""

    def proved(self) -> None:
        """The client has proved who it is: the limits of strangers no longer hold for it."""

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection: it has given up, and may have turned to
        another node. Asks the kernel: too slow to call a thousand times a second."""


class Groups(Protocol):
    """The Paxos groups of this node, as far as the broker sees them."""

    def now(self) -> Now: ...

    def acting(self, group: GroupId) -> bool:
        """Whether this node may answer for the group at this very moment (lease checked now)."""

    def epoch(self, group: GroupId) -> int:
        """The lease's epoch: Kafka's leader epoch, increases with every change of master."""

    def master(self, group: GroupId) -> NodeId | None:
        """The known lease holder, acting or not; None if there is none."""

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        """The nodes that keep the group's log: Kafka's replicas."""

    def alive(self) -> frozenset[NodeId]:
        """The nodes heard of lately, this one included."""

    def moved_ns(self, group: GroupId) -> int:
        """When this node last handed the group to another one, if some clients may still not know
        it; or 0."""

    def passes_on(self, group: GroupId) -> bool:
        """Whether this node is handing the group over, or has just done so: then it forwards what
        any client sends, and nobody else will judge that before it is in the log."""

    def ask_index(self, group: GroupId, told: Callable[[bool], None]) -> None:
        """Of a group whose master is another node: tell, perhaps at once, whether this node has
        applied by then what was acknowledged before now. False: no master has said how much that
        is."""

    def caught_up(self, group: GroupId) -> bool:
        """Whether this master has applied everything chosen before its time."""

    def is_current(self, group: GroupId) -> bool:
        """Whether this node has applied as much as the members that answered lately, a majority of
        the group's: not while it is only just learning what there is."""

    def lacks_entries(self, group: GroupId) -> bool:
        """Whether this node knows of entries that it has not applied."""

    def known_to_have_applied(self, group: GroupId, slot: Slot) -> bool:
        """Whether every living member of the group has reported having applied this slot."""

    def submit(
        self,
        group: GroupId,
        chunks: tuple[Buffer, ...],
        done: Callable[[Outcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        """Queue one command; `done` is called exactly once, perhaps before this returns.

        While the group is being handed to another node, the command is forwarded there; with
        `anywhere` it is also forwarded to the master whenever that is another node.
        """

    def take(self, group: GroupId, pending: Pending) -> bool:
        """`submit` for a command that is its own Pending; returns whether so much is waiting for
        the group now that the client should be held back."""


class LogReader(Protocol):
    """The bytes of applied entries."""

    def read_span(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position` on; they may span several entries of one segment.

        Raises:
            DamagedError: if a checksum does not match.
        """


class AppliedLog(LogReader, Protocol):
    """A LogReader for the event loop, and for callers that know what will be read next."""

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        """As `read_span`, if that need not wait for the disk; None: call that in another thread."""

    def read_soon(self, position: int, size: int) -> None:
        """A hint: `read_span` will probably be called with these arguments. May do nothing."""


class ColdReader(Protocol):
    """Batches that have left the node's log: in offset order, offsets and epochs written in.

    It holds the offsets from `start` to `end`; it may reach further than what this node has
    applied, and may overlap with the log.
    """

    def start(self, uid: int) -> int | None:
        """The first offset; None if there is nothing of this partition."""

    def end(self, uid: int) -> int | None:
        """The offset behind the last batch; None if there is nothing of this partition."""

    def knows(self, uid: int) -> bool:
        """Whether `end` and `segments` can be answered without the disk: the event loop asks
        first."""

    def known_end(self, uid: int) -> int | None:
        """`end`, or a little less: without touching the disk."""

    def read_now(self, uid: int, offset: int, bytes_max: int) -> list[memoryview] | None:
        """As `read`, perhaps less of it, if that need not wait for the disk; None: call that in
        another thread."""

    def read(self, uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        """Whole batches, from the one that contains `offset` or, where that was compacted away, the
        next one. The first is always returned, more as long as they fit; one or several per view.

        Raises:
            StorageError: if they cannot be read, or are not what was written.
        """

    def read_soon(self, uid: int, offset: int, bytes_max: int) -> None:
        """A hint: `read` will probably be called with these arguments. May do nothing."""

    def find_time(self, uid: int, timestamp_ms: int, since: int) -> int | None:
        """Base offset of the first batch, from the one with offset `since` on, whose header claims
        a record of this time or later; None if there is none."""

    def next_latest(
        self, uid: int, since: int, until: int, seen: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Go through the batches that hold offsets from `since` to `until`, by the greatest times
        they claim, latest first, and in offset order among equal times: time and base offset of the
        batch after `seen`."""

    def bytes_from(self, uid: int, offset: int) -> int:
        """Bytes of the batches from the one that contains `offset` on: an estimate, without
        touching the disk."""

    def bytes_of(self, uid: int) -> int:
        """Bytes of its files, without touching the disk."""

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
    """Runs jobs one after the other, without the loop waiting for them."""

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        """`done` gets the result on the loop, or `failed` the StorageError; without `failed` such
        an error ends the node."""


class BackgroundWorker(Worker, Protocol):
    """One for long jobs that never wait for anything."""

    def rest(self) -> None:
        """Such a job calls this now and then to leave the interpreter to others."""


class Journal(Protocol):
    """Where the node tells its operator what it does."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


class Timers(Protocol):
    def call_at(self, boot_ns: int, callback: Callable[[], None]) -> object:
        """Call back once at or soon after `boot_ns`; the returned handle cancels it."""

    def cancel(self, handle: object) -> None: ...


class LogDir(Protocol):
    """Where this node keeps its log; for requests about its size."""

    @property
    def path(self) -> str: ...

    def volume(self) -> tuple[int, int]:
        """Bytes of the file system: in all, and still available.

        Raises:
            OSError: if it cannot be asked.
        """


class LiveSetting(NamedTuple):
    """A setting that can be changed while the node runs."""

    name: str
    value: str
    at_start: str
    is_number: bool
    documentation: str


class LiveSettings(Protocol):
    """The node's settings that can be changed while it runs; a restart forgets the changes."""

    def rows(self) -> Iterable[LiveSetting]: ...

    def change(self, wanted: Mapping[str, str | None], *, only_check: bool) -> str:
        """Set what has a value, take back what has None: all or nothing. Returns what is wrong."""
