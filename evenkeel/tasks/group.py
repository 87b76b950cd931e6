"""The task group: any tasks, topics or shards, each run by one member at a time.

    async def work(lease):
        while lease.held:
            ...

    async with TaskGroup("localhost:9092", "crawlers") as group:
        await group.submit(["eu", "us", "asia"])
        await group.run(work)

This is the shell: `Member` decides (tasks/member.py); this module sends its notes, reads the ledger
and the clock, and reports to the user. Why no two members can run one task is in docs/adr/0019.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Self

import attrs
import trio

from evenkeel.admin.admin import Admin
from evenkeel.config import ClientConfig, ConsumerConfig, OffsetReset, ProducerConfig
from evenkeel.consumer.consumer import Consumer
from evenkeel.coordinator import Coordinator
from evenkeel.errors import (
    ClosedError,
    ConfigurationError,
    EvenkeelError,
    LeaseLostError,
    LedgerError,
    TimedOutError,
)
from evenkeel.lifetime import Scoped, background
from evenkeel.producer.producer import Producer
from evenkeel.tasks.config import TaskGroupConfig
from evenkeel.tasks.enrolment import CoordinatorUnreachable, Enrolment
from evenkeel.tasks.events import (
    GroupChanged,
    Notice,
    PlanChanged,
    PlanDone,
    TaskEvent,
    TaskGroupState,
    TaskGroupStatistics,
    TaskLease,
    TaskStarted,
    TaskStopping,
)
from evenkeel.tasks.ledger import Ledger
from evenkeel.tasks.member import (
    CLOSED,
    CoordinatorView,
    Effect,
    Member,
    Over,
    Phase,
    Read,
    Start,
    Stop,
    Trim,
    Write,
)
from evenkeel.tasks.notes import (
    Checkpoint,
    Note,
    NoteError,
    Notify,
    Plan,
    Running,
    Submit,
    View,
    Withdraw,
    decode,
)
from evenkeel.tasks.outbox import Outbox
from evenkeel.tasks.topic import checked, ledger_of, make_ledger, new_session, now_ns

CLOSE_S_MAX: Final = 5.0
"""How long leaving may take to tell the others; they notice by themselves a lease later."""
EVENTS_MAX: Final = 4096
"""Events not fetched yet; above it the oldest that only inform are dropped, and counted."""
LOOK_EVERY_S: Final = 0.5
"""trio's clock stands still while the machine sleeps; ours does not, and is read this often."""
INFORMING: Final = (GroupChanged, PlanChanged, PlanDone, Notice)

Work = Callable[[TaskLease], Awaitable[None]]


@attrs.define(eq=False)
class _Awaited:
    """A note with a waiting caller, until it has been read."""

    note: Note
    read: trio.Event = attrs.Factory(trio.Event)
    counted: bool = False


@attrs.define
class _Counts:
    sessions: int = 0
    lost_because: str = ""
    read: int = 0
    void: int = 0
    trims_failed: int = 0
    dropped: int = 0


class TaskGroup(Scoped["TaskGroup"]):
    """A member of a task group. Give a function to `run`, or iterate over the events yourself.

    Entering the `async with` waits until the ledger has been read. Leaving it tells the others that
    everything has stopped, and they get the tasks at once.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        config: TaskGroupConfig | None = None,
        *,
        client: ClientConfig | None = None,
    ) -> None:
        super().__init__()
        if not group:
            raise ConfigurationError("a task group needs a name")
        self._bootstrap = bootstrap
        self._group = group
        self._config = TaskGroupConfig() if config is None else config
        self._client_config = ClientConfig() if client is None else client
        self._place = ledger_of(group, self._config)
        self._member = self._new_member(None)
        self._leases: dict[str, TaskLease] = {}
        self._events: deque[TaskEvent] = deque()
        self._awaited: list[_Awaited] = []
        self._trim_before = 0
        self._plan_done = 0
        self._managed = False
        self._closing = False
        self._over: Over | None = None
        self._failure: EvenkeelError | None = None
        self._changed = trio.Event()
        self._counts = _Counts()

    # -- for users --------------------------------------------------------------------------------

    @property
    def session(self) -> str:
        """Our name in the ledger; a new one after our lease was lost."""
        return self._member.name

    @property
    def is_leader(self) -> bool:
        return self._open and self._member.is_leader

    @property
    def state(self) -> TaskGroupState:
        """The state of the ledger as far as it has been read."""
        self._check_open()
        return TaskGroupState.of(self._member.ledger)

    @property
    def leases(self) -> tuple[TaskLease, ...]:
        """The leases on the tasks that we run at this moment."""
        return tuple(lease for _, lease in sorted(self._leases.items()))

    async def submit(self, tasks: Iterable[str]) -> None:
        """Add tasks to the task group; known ones stay as they are.

        Raises:
            ConfigurationError: if the task group would have too many.
        """
        names = tuple(tasks)
        note = checked(lambda: Submit(by=self.session, tasks=names))
        await self._append(note)
        missing = [task for task in names if task not in self._member.ledger.tasks]
        if missing:
            raise ConfigurationError(f"no room for task '{missing[0]}'", why="too many tasks")

    async def withdraw(self, tasks: Iterable[str]) -> None:
        """Remove tasks from the task group; members that run them stop."""
        names = tuple(tasks)
        await self._append(checked(lambda: Withdraw(by=self.session, tasks=names)))

    async def notify(self, payload: bytes) -> None:
        """Send a message to all members: a `Notice` for each of them."""
        await self._append(checked(lambda: Notify(by=self.session, payload=payload)))

    async def wait_for(self, condition: Callable[[TaskGroupState], bool]) -> TaskGroupState:
        """Wait until the state read so far satisfies the condition."""
        while True:
            changed, state = self._changed, self.state
            self._raise_failure()
            if condition(state):
                return state
            await changed.wait()

    def stop(self) -> None:
        """Stop all our tasks in an orderly way and leave; then `run` and iterating end."""
        self._check_open()
        self._close()

    async def run(self, work: Work) -> None:
        """Call `work` for every task we get, in a task of its own; continues until `stop`.

        When a task has to stop, its `work` is cancelled and has `stop_ms` for its cleanup. When
        `work` returns by itself the task is finished, for all members. Its exceptions are raised
        here, as by a nursery.
        """
        self._managed = True
        try:
            async with trio.open_nursery() as nursery:
                async for event in self:
                    if isinstance(event, TaskStarted):
                        nursery.start_soon(self._work, work, event.lease)
        finally:
            self._managed = False

    async def _work(self, work: Work, lease: TaskLease) -> None:
        finished = False
        try:
            with lease._scope:
                if lease.held and not lease.stopping:
                    await work(lease)
                    finished = not lease.stopping
        finally:
            if not lease.ended:
                self._end(lease, finished=finished)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TaskEvent:
        """The next event; waits for it.

        Raises:
            EvenkeelError: what makes it impossible to continue.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        while True:
            changed = self._changed
            self._raise_failure()
            if self._events:
                return self._events.popleft()
            if self._over is not None and not self._over.again:
                raise StopAsyncIteration
            await changed.wait()

    def statistics(self) -> TaskGroupStatistics:
        return TaskGroupStatistics(
            sessions=self._counts.sessions,
            lost_because=self._counts.lost_because,
            notes_written=self._outbox.written_count,
            notes_failed=self._outbox.failed_count,
            notes_read=self._counts.read,
            notes_void=self._counts.void,
            trims_failed=self._counts.trims_failed,
            events_dropped=self._counts.dropped,
        )

    # -- leases (for TaskLease) -------------------------------------------------------------------

    def lease_left_ns(self, lease: TaskLease) -> int:
        now = now_ns()
        held = self._member.held(now, lease.task, lease.token)
        return self._member.until_ns - now if held else 0

    def lease_ended(self, lease: TaskLease, *, finished: bool) -> None:
        self._check_open()
        if lease.ended:
            raise LeaseLostError(f"the lease on '{lease.task}' has already ended")
        if not lease.stopping and not finished:
            raise ConfigurationError(
                f"'{lease.task}' has not been asked to stop", advice="finish() it, or stop()"
            )
        self._end(lease, finished=finished)

    async def write_checkpoint(self, lease: TaskLease, value: bytes) -> None:
        if lease.ended:
            raise LeaseLostError(f"the lease on '{lease.task}' has ended")
        by, task, token = self.session, lease.task, lease.token
        note = checked(lambda: Checkpoint(by=by, task=task, token=token, value=value))
        if not await self._append(note):
            raise LeaseLostError(
                f"the checkpoint of '{lease.task}' was not accepted",
                why="the task is no longer ours",
            )

    def _end(self, lease: TaskLease, *, finished: bool) -> None:
        lease.ended = True
        if self._leases.get(lease.task) is lease:
            del self._leases[lease.task]
        self._carry_out(self._member.ended(now_ns(), lease.task, lease.token, finished=finished))

    async def _append(self, note: Note) -> bool:
        """Write a note and wait until it has been read; returns whether it counts."""
        self._check_open()
        self._raise_failure()
        awaited = _Awaited(note)
        self._awaited.append(awaited)
        try:
            seconds = self._client_config.operation_timeout_ms / 1000
            with trio.move_on_after(seconds):
                await self._outbox.write(note)
                await self._unless_failed(awaited.read)
                return awaited.counted
        finally:
            self._awaited.remove(awaited)
        raise TimedOutError("a note was not read back", why=f"not within {seconds:g} s")

    async def _unless_failed(self, event: trio.Event) -> None:
        while not event.is_set():
            self._raise_failure()
            await self._changed.wait()

    # -- carrying out -----------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write(note):
                    self._outbox.put(note)
                case Start(task, token, checkpoint):
                    lease = TaskLease(task, token, checkpoint, self)
                    self._leases[task] = lease
                    self._tell(TaskStarted(lease))
                case Stop(task, token, lost):
                    self._stop(self._leases[task], lost)
                case Trim(before):
                    self._trim_before = before
                case Read(_, note):
                    self._tell_what_was_read(note)
                case Over():
                    self._over = effect
        self._something_new()

    def _stop(self, lease: TaskLease, lost: bool) -> None:
        lease.stopping, lease.lost = True, lost
        lease._scope.cancel()
        if not self._managed:
            self._tell(TaskStopping(lease))

    def _tell_what_was_read(self, note: Note) -> None:
        ledger = self._member.ledger
        match note:
            case View():
                self._tell(GroupChanged(note.generation, note.leader, note.members))
            case Plan():
                self._tell(PlanChanged(ledger.plan.version, ledger.plan.owners))
            case Running() if ledger.all_running and ledger.plan.version > self._plan_done:
                self._plan_done = ledger.plan.version
                self._tell(PlanDone(self._plan_done))
            case Notify():
                self._tell(Notice(note.by, note.payload))
            case _:
                pass

    def _tell(self, event: TaskEvent) -> None:
        if len(self._events) >= EVENTS_MAX:
            oldest = next((one for one in self._events if isinstance(one, INFORMING)), None)
            if oldest is not None:  # else there is one per task, and tasks have a limit
                self._events.remove(oldest)
                self._counts.dropped += 1
        self._events.append(event)

    def _something_new(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _fail(self, error: EvenkeelError) -> None:
        """Stop everything: what runs is stopped, and all waits fail."""
        if self._failure is None:
            self._failure = error
        self._close()

    def _close(self) -> None:
        self._closing = True
        self._carry_out(self._member.close(now_ns()))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.again() from self._failure.__cause__

    # -- the tasks behind it ----------------------------------------------------------------------

    async def _read_ledger(self) -> None:
        while True:
            try:
                records = await self._consumer.__anext__()
            except EvenkeelError as error:
                if not error.retriable:
                    raise
                continue
            for record in records:
                self._take_in(record.offset, record.value)

    def _take_in(self, offset: int, value: bytes | None) -> None:
        try:
            note: Note | None = decode(value or b"")
        except NoteError:
            note = None
        try:
            effects = self._member.read(now_ns(), offset, note)
        except ValueError as error:
            if isinstance(error, EvenkeelError):
                raise
            raise LedgerError(f"the ledger {self._place} cannot be read", why=str(error)) from error
        counted = any(isinstance(one, Read) and one.offset == offset for one in effects)
        self._counts.read += 1
        self._counts.void += not counted
        for awaited in self._awaited:
            if awaited.note == note and not awaited.read.is_set():
                awaited.counted = counted
                awaited.read.set()
                break
        self._carry_out(effects)

    def _failed(self, note: Note) -> None:
        self._carry_out(self._member.failed(now_ns(), note))

    async def _watch_the_clock(self) -> None:
        while True:
            changed = self._changed
            left_ns = self._member.deadline_ns - now_ns()
            if left_ns <= 0:
                self._carry_out(self._member.tick(now_ns()))
                await trio.lowlevel.checkpoint()
                continue
            with trio.move_on_after(min(left_ns / 1e9, LOOK_EVERY_S)):
                await changed.wait()

    async def _trim(self) -> None:
        done = 0
        while True:
            changed = self._changed
            if self._trim_before <= done:
                await changed.wait()
                continue
            done = self._trim_before
            try:
                await self._admin.delete_records({self._place: done})
            except EvenkeelError:
                self._counts.trims_failed += 1  # the next snapshot tries again

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except EvenkeelError as error:
            self._fail(error)

    # -- sessions ---------------------------------------------------------------------------------

    def _new_member(self, ledger: Ledger | None) -> Member:
        config = self._config
        return Member(
            new_session(config.name),
            config.sharding,
            config.timing,
            metadata=config.metadata,
            stop_all=config.stop_all,
            ledger=ledger,
        )

    async def _live(self) -> None:
        """Session after session, until one ends for good."""
        while True:
            self._counts.sessions += 1
            self._carry_out(self._member.tick(now_ns()))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guarded, self._run_membership)
                over = await self._until_over()
                nursery.cancel_scope.cancel()
            if not over.again and over.reason != CLOSED:
                self._fail(LedgerError("this member cannot continue", why=over.reason))
            if not over.again or self._closing:
                self._over = Over(over.reason, again=False)
                self._something_new()
                return
            self._counts.lost_because = over.reason
            self._over = None
            self._member = self._new_member(self._member.ledger)

    async def _until_over(self) -> Over:
        while self._over is None:
            await self._changed.wait()
        return self._over

    async def _run_membership(self) -> None:
        while self._member.phase is Phase.JOINING:
            await self._changed.wait()
        name = self._member.name
        enrolled = self._member.ledger.members.get(name)
        if enrolled is None:
            return  # the session has ended already
        coordinator = Coordinator(self._admin.client, self._group)
        enrolment = Enrolment(
            coordinator, self._config, name, enrolled.joined, self._on_coordinator_view
        )
        try:
            await enrolment.run()
        except CoordinatorUnreachable as error:
            self._carry_out(
                self._member.close(now_ns(), f"coordinator unreachable: {error}", again=True)
            )
        finally:
            await enrolment.leave()

    def _on_coordinator_view(self, view: CoordinatorView) -> None:
        self._carry_out(self._member.on_coordinator_view(now_ns(), view))

    # -- lifetime ---------------------------------------------------------------------------------

    def _lifetime(self) -> AbstractAsyncContextManager["TaskGroup"]:
        return self._run()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator["TaskGroup"]:
        lease_ms = self._config.timing.lease_ms
        written = ProducerConfig(linger_ms=0, delivery_timeout_ms=lease_ms)
        read = ConsumerConfig(offset_reset=OffsetReset.EARLIEST)
        async with (
            Admin(self._bootstrap, client=self._client_config) as self._admin,
            Producer(self._bootstrap, written, client=self._client_config) as producer,
            Consumer(self._bootstrap, read, client=self._client_config) as self._consumer,
        ):
            self._outbox = Outbox(producer, self._place, self._failed)
            await make_ledger(self._admin, self._place, self._config.replication)
            await self._consumer.assign([self._place])
            async with background() as nursery:
                for work in (
                    *(self._read_ledger, self._outbox.send, self._outbox.settle),
                    *(self._watch_the_clock, self._trim, self._live),
                ):
                    nursery.start_soon(self._guarded, work)
                try:
                    await self._take_part()
                    yield self
                finally:
                    await self._leave_group()

    async def _take_part(self) -> None:
        """Wait until we have read our own joining note: from then on `state` is meaningful."""
        seconds = self._client_config.operation_timeout_ms / 1000
        with trio.move_on_after(seconds):
            while self._member.phase is Phase.JOINING:
                await self._changed.wait()
                self._raise_failure()
            return
        raise TimedOutError(f"could not join '{self._group}'", why=f"not within {seconds:g} s")

    async def _leave_group(self) -> None:
        """Leave, within a few seconds, even if we are being cancelled."""
        self._close()
        for lease in self.leases:
            if not lease.ended:
                self._end(lease, finished=False)
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            if self._failure is None:  # else nothing may be sent any more
                await self._outbox.empty()
        self._fail(ClosedError("the task group is closed"))
