"""One member of a task group as a state machine: events with their times in, effects out.

A member writes notes and reads the ledger. It acts only on what it has read: a task starts when the
member reads that it holds the task's lock, and the lock is released when the task has ended. It may
run tasks only under its lease. It renews the lease when it reads its own renewal note, counted from
when it *wrote* the note, and it stops by its own clock, without hearing anything. Others count its
lease from when they *read* the note, and so declare it expired later.

A *session* is one life of a member in the ledger, under a name that is never used again. When its
lease lapses, or others have declared it expired, everything is stopped and the session is over; the
shell begins a new one when all runs have ended.

Times are nanoseconds of a monotonic clock, given by the caller.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import attrs

from evenkeel.errors import ConfigurationError
from evenkeel.tasks.config import MS, Timing
from evenkeel.tasks.ledger import Ledger, Lock
from evenkeel.tasks.notes import (
    Acquire,
    Checkpoint,
    Evict,
    Expire,
    Finish,
    Join,
    Leave,
    Note,
    NoteError,
    Notify,
    Plan,
    Release,
    Renew,
    Running,
    Snapshot,
    Stopped,
    Submit,
    View,
    Withdraw,
)
from evenkeel.tasks.sharding import Sharding

SNAPSHOT_EVERY: Final = 500
"""Notes between two snapshots; those before the last snapshot but one are deleted."""
GAP_NOTES_MAX: Final = 20 * SNAPSHOT_EVERY
"""Notes read without a snapshot before we call the ledger damaged."""
BEATS_MAX: Final = 64
"""Renewals that we wrote and have not read yet."""
NEVER: Final = 1 << 62
CLOSED: Final = "closed"


class Phase(Enum):
    JOINING = "joining"
    IN = "in"
    ENDING = "ending"
    """Tasks are being stopped; no new ones start."""
    OVER = "over"


@attrs.frozen
class Write:
    """Append this note; call `failed` if it may not be there."""

    note: Note


@attrs.frozen
class Start:
    task: str
    token: int
    checkpoint: bytes


@attrs.frozen
class Stop:
    """Stop this run, then call `ended`. `lost`: the lease is over, it must end at once."""

    task: str
    token: int
    lost: bool


@attrs.frozen
class Trim:
    """Nothing before this offset is needed any more."""

    before: int


@attrs.frozen
class Read:
    """A note that counted, for observers."""

    offset: int
    note: Note


@attrs.frozen
class Over:
    """Everything has ended. `again`: another session may begin."""

    reason: str
    again: bool


Effect = Write | Start | Stop | Trim | Read | Over


@attrs.frozen
class CoordinatorView:
    """The group coordinator's latest view, before it is a `View` in the ledger. A member that has
    read the ledger up to `read_up_to` knows all members of the view."""

    generation: int
    leader: str
    members: tuple[str, ...]
    read_up_to: int = 0


@attrs.define
class Run:
    token: int
    stopping: bool = False


class Member:
    """A session. `ledger` is what this member has read so far."""

    def __init__(
        self,
        name: str,
        sharding: Sharding,
        timing: Timing,
        *,
        metadata: Mapping[str, Any] | None = None,
        stop_all: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger`: what an earlier session has read, to continue from there."""
        self.name = name
        self.timing = timing
        self.ledger = Ledger(sharding) if ledger is None else ledger
        self.phase = Phase.JOINING
        self.runs: dict[str, Run] = {}
        self.until_ns = -NEVER
        """Until this time of our own clock, no other member runs what we hold."""
        self.deadline_ns = 0
        """When to call `tick`, unless called before."""
        self._metadata = dict(metadata or {})
        self._stop_all = stop_all
        self._reason = ""
        self._again = True
        self._joined = False
        self._lost = False
        self._left = False
        self._coordinator_view: CoordinatorView | None = None
        self._begun_ns: int | None = None
        self._beat = 0
        self._asked: dict[int, int] = {}
        self._next_beat_ns = 0
        self._seen: dict[str, int] = {}
        self._plan_seen_ns = 0
        self._in_flight: list[Note] = []
        self._finished: dict[str, int] = {}
        self._released: dict[str, int] = {}
        """The tokens by which we have asked to release tasks: they are never used again, whatever
        the next plan says, because the note is on its way."""
        self._consider = True
        """Whether something has happened that may require another plan."""
        self._gap: list[tuple[int, Note | None]] = []
        self._effects: list[Effect] = []

    # -- events -----------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> list[Effect]:
        """Let time pass."""
        return self._decide(now_ns)

    def read(self, now_ns: int, offset: int, note: Note | None) -> list[Effect]:
        """Take the next record of the ledger; None if it is not a note.

        Raises:
            ValueError: if it is impossible: the ledger was deleted, or lost what no snapshot has.
        """
        if note is not None and note.by == self.name and note in self._in_flight:
            self._in_flight.remove(note)
        if offset > self.ledger.next_offset:
            self._after_gap(now_ns, offset, note)
        elif offset == self.ledger.next_offset:
            self._apply(now_ns, offset, note)
        else:
            raise ValueError(f"the ledger continues at offset {offset}, which was read before")
        return self._decide(now_ns)

    def on_coordinator_view(self, now_ns: int, latest: CoordinatorView) -> list[Effect]:
        """The group coordinator has started a new generation with us in it.

        Like every other method it raises ConfigurationError if the sharding gives impossible shares
        while we lead.
        """
        self._coordinator_view = latest
        self._consider = True
        return self._decide(now_ns)

    def ended(self, now_ns: int, task: str, token: int, *, finished: bool) -> list[Effect]:
        """A run has ended: it was stopped, or the task is done for good."""
        run = self.runs.pop(task)
        assert run.token == token, f"{task} ran with token {run.token}, not {token}"
        if finished:
            self._finished[task] = token
        return self._decide(now_ns)

    def failed(self, now_ns: int, note: Note) -> list[Effect]:
        """A note may not have been written; it is written again if it is still needed."""
        if note in self._in_flight:
            self._in_flight.remove(note)
            self._consider = True
        return self._decide(now_ns)

    def close(self, now_ns: int, reason: str = CLOSED, *, again: bool = False) -> list[Effect]:
        """Stop everything in an orderly way, and leave."""
        self._end(reason, lost=False, again=again)
        return self._decide(now_ns)

    def held(self, now_ns: int, task: str, token: int) -> bool:
        """Whether no other member can run the task at this very moment."""
        return now_ns < self.until_ns and self.ledger.locks.get(task) == Lock(self.name, token)

    @property
    def stop_at_ns(self) -> int:
        """When everything has to stop unless the lease is renewed before."""
        return self.until_ns - self.timing.stop_ms * MS

    @property
    def is_leader(self) -> bool:
        """Whether the ledger says that we lead, and the coordinator has not said otherwise
        since."""
        view, latest = self.ledger.view, self._coordinator_view
        return (
            latest is not None
            and view.leader == latest.leader == self.name
            and view.generation == latest.generation
        )

    # -- reading ----------------------------------------------------------------------------------

    def _apply(self, now_ns: int, offset: int, note: Note | None) -> None:
        trimmable = self.ledger.snapshot_as_of
        self._consider |= not isinstance(note, Renew | Checkpoint | Notify)
        if not self.ledger.apply(offset, note) or note is None:
            if isinstance(note, Join) and note.by == self.name and not self._joined:
                self._end(
                    "the task group has the maximum number of members", lost=True, again=False
                )
            return
        self._effects.append(Read(offset, note))
        if isinstance(note, Join | Renew):
            self._seen[note.by] = now_ns
            if note.by == self.name:
                self._joined = True
                self._renewed(note.beat if isinstance(note, Renew) else 0)
        elif isinstance(note, Plan):
            self._plan_seen_ns = now_ns
        elif isinstance(note, Snapshot) and note.by == self.name and trimmable:
            self._effects.append(Trim(trimmable))
        self._detect_own_eviction()

    def _renewed(self, beat: int) -> None:
        asked_ns = self._asked.get(beat)
        if asked_ns is None:
            return
        lasting_ns = (self.timing.lease_ms - self.timing.drift_ms_max) * MS
        self.until_ns = max(self.until_ns, asked_ns + lasting_ns)
        for older in [one for one in self._asked if one <= beat]:
            del self._asked[older]

    def _detect_own_eviction(self) -> None:
        us = self.ledger.members.get(self.name)
        if us is None and self._joined:
            self._end("the others had no sign of us for a lease", lost=True)
        elif us is not None and us.evicted:
            self._end("evicted: a plan was not acknowledged in time", lost=True)

    def _after_gap(self, now_ns: int, offset: int, note: Note | None) -> None:
        """Notes were deleted before we read them: a snapshot further on contains their effects."""
        self._gap.append((offset, note))
        first = self._gap[0][0]
        if isinstance(note, Snapshot) and first <= note.as_of <= offset:
            try:
                self.ledger.restore(note)
            except (TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"the snapshot at offset {offset} is damaged") from error
            if self.phase is not Phase.JOINING:  # we cannot know what became of our notes there
                self._end("we could not read as fast as the others write", lost=True)
            rest, self._gap = self._gap, []
            self._seen = dict.fromkeys(self.ledger.members, now_ns)
            self._plan_seen_ns = now_ns
            self._joined = self._joined or self.name in self.ledger.members
            self._detect_own_eviction()
            for at, one in rest:
                if at >= note.as_of:
                    self._apply(now_ns, at, one)
        elif len(self._gap) > GAP_NOTES_MAX:
            raise ValueError(f"the ledger begins at offset {first}, without a snapshot")

    # -- deciding ---------------------------------------------------------------------------------

    def _end(self, reason: str, *, lost: bool, again: bool = True) -> None:
        if self.phase in (Phase.JOINING, Phase.IN):
            self.phase, self._reason, self._again = Phase.ENDING, reason, again
        self._lost = self._lost or lost

    def _decide(self, now_ns: int) -> list[Effect]:
        self.deadline_ns = NEVER
        if self.phase in (Phase.IN, Phase.ENDING) and not self._lost and now_ns >= self.stop_at_ns:
            self._end("the lease could not be renewed in time", lost=True)
        if self.phase is Phase.JOINING:
            self._join(now_ns)
        if self.phase is not Phase.OVER:
            self._stay_alive(now_ns)
            self._stop_what_is_not_ours()
            self._hand_back()
        if self.phase is Phase.IN:
            self._take_and_start()
            self._acknowledge()
            self._declare_expired(now_ns)
            self._publish_view()
            self._lead(now_ns)
        elif self.phase is Phase.ENDING and not self.runs:
            self._leave()
        effects, self._effects = self._effects, []
        return effects

    def _at_latest(self, when_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, when_ns)

    def _write(self, note: Note) -> None:
        if note not in self._in_flight:
            self._in_flight.append(note)
            self._effects.append(Write(note))

    def _join(self, now_ns: int) -> None:
        if self._joined and now_ns < self.stop_at_ns:
            self.phase = Phase.IN
            return
        if not self._joined:
            # Of many attempts the first may be the one that is read: count from its time.
            self._asked.setdefault(0, now_ns)
            self._write(Join(by=self.name, lease_ms=self.timing.lease_ms, metadata=self._metadata))
        if self._begun_ns is None:
            self._begun_ns = now_ns
        give_up_ns = self._begun_ns + self.timing.lease_ms * MS
        if now_ns >= give_up_ns:
            # The others may have declared us expired in a part that we have not read and never
            # will: those notes may be deleted. Another name may succeed.
            self._end("could not join within a lease", lost=True)
        else:
            self._at_latest(give_up_ns)

    def _stay_alive(self, now_ns: int) -> None:
        if self._lost:
            return
        if self.phase is not Phase.JOINING:
            self._at_latest(self.stop_at_ns)
        if not self._beat:
            self._beat, self._next_beat_ns = 1, now_ns + self.timing.renew_ms * MS
        if now_ns >= self._next_beat_ns:
            self._next_beat_ns = now_ns + self.timing.renew_ms * MS
            if len(self._asked) < BEATS_MAX:
                self._asked[self._beat] = now_ns
                self._write(Renew(by=self.name, beat=self._beat))
                self._beat += 1
        self._at_latest(self._next_beat_ns)

    def _is_wanted(self, task: str, token: int) -> bool:
        """Whether we should run the task by this token: with `stop_all` every plan needs a new
        token."""
        current = not self.ledger.stop_all or token > self.ledger.plan_offset
        return (
            self.phase is Phase.IN
            and current
            and self._released.get(task) != token
            and task in self.ledger.share(self.name)
            and self.ledger.locks.get(task) == Lock(self.name, token)
        )

    def _stop_what_is_not_ours(self) -> None:
        for task, run in self.runs.items():
            if not run.stopping and not self._is_wanted(task, run.token):
                run.stopping = True
                self._effects.append(Stop(task, run.token, self._lost))

    def _ours(self) -> Iterator[tuple[str, Lock]]:
        return (one for one in self.ledger.locks.items() if one[1].holder == self.name)

    def _hand_back(self) -> None:
        """Release tasks that have stopped, and report those that are done for good."""
        on_the_way = {
            task for note in self._in_flight if isinstance(note, Release) for task in note.tasks
        }
        stopped = []
        for task, lock in self._ours():
            if self._finished.get(task) == lock.token and task in self.ledger.tasks:
                self._write(Finish(by=self.name, task=task, token=lock.token))
            elif task not in self.runs and not self._is_wanted(task, lock.token):
                stopped.append(task)
        self._finished = {
            task: token
            for task, token in self._finished.items()
            if self.ledger.locks.get(task) == Lock(self.name, token)
        }
        self._released = {
            task: token
            for task, token in self._released.items()
            if self.ledger.locks.get(task) == Lock(self.name, token)
        }
        stopped = sorted(set(stopped) - on_the_way)
        if stopped:
            tokens = {task: self.ledger.locks[task].token for task in stopped}
            self._released |= tokens
            self._write(Release(by=self.name, tasks=tuple(stopped), up_to=max(tokens.values())))

    def _take_and_start(self) -> None:
        version = self.ledger.plan.version
        on_the_way = {
            task
            for note in self._in_flight
            if isinstance(note, Acquire) and note.version == version
            for task in note.tasks
        }
        free = []
        for task in self.ledger.share(self.name):
            lock = self.ledger.locks.get(task)
            if lock is None:
                if task not in on_the_way and self.ledger.may_acquire(self.name, task):
                    free.append(task)
            elif (
                task not in self.runs
                and task not in self._finished
                and self._is_wanted(task, lock.token)
            ):
                self.runs[task] = Run(lock.token)
                checkpoint = self.ledger.checkpoints.get(task, b"")
                self._effects.append(Start(task, lock.token, checkpoint))
        if free:
            self._write(Acquire(by=self.name, version=version, tasks=tuple(free)))

    def _acknowledge(self) -> None:
        version, name = self.ledger.plan.version, self.name
        if name not in self.ledger.plan.owners:
            return
        if any(not self._is_wanted(task, lock.token) for task, lock in self._ours()):
            return  # some task is still to be stopped or released
        if self.ledger.stopped.get(name) != version:
            self._write(Stopped(by=name, version=version))
        elif self.ledger.running.get(name) != version and all(
            task in self.runs for task in self.ledger.share(name)
        ):
            self._write(Running(by=name, version=version))

    def _declare_expired(self, now_ns: int) -> None:
        """Declare members expired that were silent for a lease. The leader does so first; others
        wait a little longer, in case there is no leader."""
        patience_ns = 0 if self.is_leader else self.timing.renew_ms * MS
        for name, member in self.ledger.members.items():
            if name != self.name:
                over_ns = self._seen.setdefault(name, now_ns) + member.lease_ms * MS + patience_ns
                if now_ns >= over_ns:
                    self._write(Expire(by=self.name, member=name, alive=member.alive))
                else:
                    self._at_latest(over_ns)

    def _leave(self) -> None:
        if self.name in self.ledger.members and not self._left:
            self._left = True
            self._effects.append(Write(Leave(by=self.name)))
        self.phase = Phase.OVER
        self._effects.append(Over(self._reason, self._again))

    # -- leading ----------------------------------------------------------------------------------

    def _publish_view(self) -> None:
        """Write the coordinator's view as a note: as the new leader, or as the last one."""
        latest, view = self._coordinator_view, self.ledger.view
        if latest is None or self.ledger.next_offset < latest.read_up_to:
            return
        if latest == CoordinatorView(view.generation, view.leader, view.members, latest.read_up_to):
            return
        free = view.leader not in self.ledger.members or view.leader == self.name
        later = latest.generation > view.generation
        if (latest.leader == self.name and (later or free)) or (
            view.leader == self.name and not later and latest.leader in self.ledger.members
        ):
            self._write(
                View(
                    by=self.name,
                    generation=latest.generation,
                    leader=latest.leader,
                    members=latest.members,
                )
            )

    def _lead(self, now_ns: int) -> None:
        if not self.is_leader:
            return
        if self._consider:
            self._consider = False
            self._make_plan()
        self._await_acknowledgements(now_ns)
        as_of = self.ledger.snapshot_as_of
        if self.ledger.next_offset - as_of >= SNAPSHOT_EVERY and not any(
            isinstance(note, Snapshot) for note in self._in_flight
        ):
            self._write(self.ledger.snapshot(self.name))

    def _make_plan(self) -> None:
        ledger = self.ledger
        there = [
            name
            for name, member in ledger.members.items()
            if name in ledger.view.members and not member.evicted
        ]
        there.sort(key=lambda name: ledger.members[name].joined)
        if not there:
            return
        tasks = ledger.sorted_tasks()
        members = [ledger.candidate(name) for name in there]
        shares = ledger.sharding.rebalance(tasks, members, ledger.plan)
        given = shares.all_tasks()
        if len(set(given)) < len(given) or not (
            set(given) <= set(tasks) and shares.owners.keys() <= set(there)
        ):
            raise ConfigurationError(
                f"{type(ledger.sharding).__name__} gave impossible shares",
                why="a task is given twice, or a task or member does not exist",
            )
        if ledger.sharding.equal(shares, ledger.plan):
            return
        try:
            plan = Plan(
                by=self.name,
                version=ledger.plan.version + 1,
                term=ledger.view.term,
                stop_all=self._stop_all,
                shares=ledger.sharding.encode(shares),
            )
        except NoteError as error:
            raise ConfigurationError("this plan cannot be written", why=str(error)) from error
        self._write(plan)

    def _await_acknowledgements(self, now_ns: int) -> None:
        ledger = self.ledger
        late_ns = self._plan_seen_ns + self.timing.ack_timeout_ms * MS
        for name in ledger.plan.owners:
            member = ledger.members.get(name)
            if member is None or member.evicted:
                continue
            if ledger.stopped.get(name) != ledger.plan.version:
                if now_ns >= late_ns:
                    self._write(Evict(by=self.name, member=name, version=ledger.plan.version))
                else:
                    self._at_latest(late_ns)

    # -- on behalf of the application -------------------------------------------------------------

    def submit(self, tasks: tuple[str, ...]) -> Note:
        return Submit(by=self.name, tasks=tasks)

    def withdraw(self, tasks: tuple[str, ...]) -> Note:
        return Withdraw(by=self.name, tasks=tasks)

    def checkpoint(self, task: str, token: int, value: bytes) -> Note:
        return Checkpoint(by=self.name, task=task, token=token, value=value)

    def notify(self, payload: bytes) -> Note:
        return Notify(by=self.name, payload=payload)
