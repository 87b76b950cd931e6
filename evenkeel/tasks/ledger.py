"""The state that the notes of a ledger produce: members, leader, plan, and the holder of each task.

The ledger is one partition of a topic, and its order is the arbiter. Every member reads it from the
beginning (or from a snapshot) and applies note after note to this state. The effect of a note
depends on nothing else, so all members, whatever they believe, agree on every prefix. A note that
does not count is *void* for all of them:

- `Expire` counts if the member has not renewed its lease since the renewal that it names. So a
  member that is declared expired had no lease when that was written: see docs/adr/0019.
- `Acquire` counts, task by task, if the plan of that version gives the task to its author and
  the task has no holder. Only the holder frees a lock, or the end of the holder's session.
- `Plan` counts if it is the next version, by the leader of the current term, gives no task to
  two members, and names only present members. So plans have one order, and one leader at a time.
- `View` counts if its generation is later than the last, or if the last leader is gone or is its
  author (a group that the coordinator has forgotten begins again at 1).
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

import attrs

from evenkeel.tasks.notes import (
    MEMBERS_MAX,
    TASKS_MAX,
    Acquire,
    Checkpoint,
    Evict,
    Expire,
    Finish,
    Join,
    Leave,
    Note,
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
from evenkeel.tasks.sharding import Candidate, Sharding, TaskShares, in_order

NOWHERE: Final = -1


@attrs.define
class Enrolled:
    """A present member, according to the ledger."""

    joined: int
    alive: int
    """Offset of its last renewal, or of its `Join`."""
    lease_ms: int
    metadata: Mapping[str, Any]
    evicted: bool = False


@attrs.frozen
class GroupView:
    """The members and the leader of the group, as its coordinator reported them."""

    generation: int = 0
    leader: str = ""
    members: tuple[str, ...] = ()
    term: int = NOWHERE


@attrs.frozen
class Lock:
    """The holder of a task. The token of a later holder is always larger."""

    holder: str
    token: int


@attrs.define(eq=False)
class Ledger:
    """The state after `next_offset` offsets. Only `apply` and `restore` change it."""

    sharding: Sharding
    next_offset: int = 0
    members: dict[str, Enrolled] = attrs.Factory(dict)
    tasks: dict[str, None] = attrs.Factory(dict)
    """A set that keeps its order, which is part of the state."""
    view: GroupView = attrs.Factory(GroupView)
    plan: TaskShares = attrs.Factory(TaskShares)
    plan_offset: int = NOWHERE
    stop_all: bool = False
    stopped: dict[str, int] = attrs.Factory(dict)
    """The plan version each member has stopped for: the acknowledgement of its first phase."""
    running: dict[str, int] = attrs.Factory(dict)
    locks: dict[str, Lock] = attrs.Factory(dict)
    checkpoints: dict[str, bytes] = attrs.Factory(dict)
    snapshot_as_of: int = 0

    # -- reading ----------------------------------------------------------------------------------

    def holds(self, member: str, task: str) -> bool:
        lock = self.locks.get(task)
        return lock is not None and lock.holder == member

    def share(self, member: str) -> tuple[str, ...]:
        """The tasks the member should run: those of the plan that still exist."""
        return tuple(task for task in self.plan.of_owner(member) if task in self.tasks)

    def candidate(self, member: str) -> Candidate:
        return Candidate(member, self.members[member].metadata)

    def may_acquire(self, member: str, task: str) -> bool:
        enrolled = self.members.get(member)
        return (
            enrolled is not None
            and not enrolled.evicted
            and task in self.share(member)
            and task not in self.locks
            and (not self.stop_all or self.all_stopped)
        )

    @property
    def all_stopped(self) -> bool:
        """Whether every present owner in the plan has stopped for it."""
        return all(
            self.stopped.get(owner) == self.plan.version
            for owner in self.plan.owners
            if owner in self.members
        )

    @property
    def all_running(self) -> bool:
        """Whether the plan is fully executed: every owner has said so."""
        return all(self.running.get(owner) == self.plan.version for owner in self.plan.owners)

    # -- applying ---------------------------------------------------------------------------------

    def apply(self, offset: int, note: Note | None) -> bool:
        """Apply a note; returns whether it counts. None stands for a record that is not a note."""
        assert offset == self.next_offset, f"gap: {self.next_offset} expected, got {offset}"
        self.next_offset = offset + 1
        match note:
            case Join():
                return self._join(offset, note)
            case Renew():
                return self._renew(offset, note)
            case Evict() | Expire() | Leave():
                return self._depart(note)
            case Submit() | Withdraw():
                return self._change_tasks(note)
            case View():
                return self._take_view(offset, note)
            case Plan():
                return self._take_plan(offset, note)
            case Stopped() | Running():
                return self._acknowledge(note)
            case Acquire():
                return self._acquire(offset, note)
            case Release():
                return self._release(note)
            case Finish() | Checkpoint():
                return self._progress(note)
            case Snapshot() | Notify():
                as_of = note.as_of if isinstance(note, Snapshot) else 0
                self.snapshot_as_of = max(self.snapshot_as_of, as_of)
                return True
            case _:
                return False

    def _join(self, offset: int, note: Join) -> bool:
        if note.by in self.members or len(self.members) >= MEMBERS_MAX:
            return False  # a known member keeps its state
        self.members[note.by] = Enrolled(offset, offset, note.lease_ms, note.metadata)
        return True

    def _renew(self, offset: int, note: Renew) -> bool:
        member = self.members.get(note.by)
        if member is None or member.evicted:
            return False
        member.alive = offset
        return True

    def _depart(self, note: Evict | Expire | Leave) -> bool:
        name = note.by if isinstance(note, Leave) else note.member
        member = self.members.get(name)
        if member is None:
            return False
        if isinstance(note, Evict):
            late = self.stopped.get(name) != note.version == self.plan.version
            if note.by != self.view.leader or member.evicted or not late:
                return False  # it acknowledged before the leader read of it
            member.evicted = True
            return True
        if isinstance(note, Expire) and note.alive != member.alive:
            return False  # it has renewed its lease since
        del self.members[name]
        self.stopped.pop(name, None)
        self.running.pop(name, None)
        for task in [task for task, lock in self.locks.items() if lock.holder == name]:
            del self.locks[task]
        return True

    def _change_tasks(self, note: Submit | Withdraw) -> bool:
        if isinstance(note, Withdraw):
            known = [task for task in note.tasks if task in self.tasks]
            for task in known:
                self._forget(task)
            return bool(known)
        fresh = [task for task in dict.fromkeys(note.tasks) if task not in self.tasks]
        if not fresh or len(self.tasks) + len(fresh) > TASKS_MAX:
            return False
        self.tasks.update(dict.fromkeys(fresh))
        return True

    def _forget(self, task: str) -> None:
        """Remove a task. Its lock stays with its holder, which has to stop first."""
        del self.tasks[task]
        self.checkpoints.pop(task, None)

    def _take_view(self, offset: int, note: View) -> bool:
        later = note.generation > self.view.generation
        free = self.view.leader not in self.members or note.by == self.view.leader
        if note.by not in self.members or note.leader not in self.members or not (later or free):
            return False
        self.view = GroupView(note.generation, note.leader, note.members, offset)
        return True

    def _take_plan(self, offset: int, note: Plan) -> bool:
        if (note.by, note.term) != (self.view.leader, self.view.term):
            return False
        if note.by not in self.members or note.version != self.plan.version + 1:
            return False
        try:
            shares = self.sharding.decode(note.shares)
        except ValueError:
            return False
        given = shares.all_tasks()
        there = {name for name, member in self.members.items() if not member.evicted}
        if len(set(given)) < len(given) or not set(given) <= self.tasks.keys():
            return False
        if not shares.owners.keys() <= there:
            return False
        self.plan = attrs.evolve(shares, version=note.version)
        self.plan_offset, self.stop_all = offset, note.stop_all
        return True

    def _acknowledge(self, note: Stopped | Running) -> bool:
        """Only for the present plan: a late member cannot acknowledge another round."""
        acks = self.stopped if isinstance(note, Stopped) else self.running
        current = note.by in self.members and note.version == self.plan.version
        if not current or acks.get(note.by) == note.version:
            return False
        acks[note.by] = note.version
        return True

    def _acquire(self, offset: int, note: Acquire) -> bool:
        if note.version != self.plan.version:
            return False
        taken = [task for task in note.tasks if self.may_acquire(note.by, task)]
        for task in taken:
            self.locks[task] = Lock(note.by, offset)
        return bool(taken)

    def _release(self, note: Release) -> bool:
        ours = [
            task
            for task in note.tasks
            if self.holds(note.by, task) and self.locks[task].token <= note.up_to
        ]
        for task in ours:
            del self.locks[task]
        return bool(ours)

    def _progress(self, note: Finish | Checkpoint) -> bool:
        if self.locks.get(note.task) != Lock(note.by, note.token) or note.task not in self.tasks:
            return False
        if isinstance(note, Finish):
            self._forget(note.task)
            del self.locks[note.task]
        else:
            self.checkpoints[note.task] = note.value
        return True

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self, by: str) -> Snapshot:
        state = {
            "members": {name: attrs.astuple(one) for name, one in self.members.items()},
            "tasks": list(self.tasks),
            "view": attrs.astuple(self.view),
            "plan": [self.sharding.encode(self.plan), self.plan.version],
            "plan_offset": self.plan_offset,
            "stop_all": self.stop_all,
            "stopped": dict(self.stopped),
            "running": dict(self.running),
            "locks": self._locks_by_holder(),
            "checkpoints": {
                task: b64encode(value).decode() for task, value in self.checkpoints.items()
            },
        }
        return Snapshot(by=by, as_of=self.next_offset, state=state)

    def _locks_by_holder(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for task, lock in self.locks.items():
            found.setdefault(lock.holder, {})[task] = lock.token
        return found

    def restore(self, note: Snapshot) -> None:
        """Take over the state of a snapshot.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: if it is not one.
        """
        state = note.state
        text, version = state["plan"]
        self.members = {name: Enrolled(*one) for name, one in state["members"].items()}
        self.tasks = dict.fromkeys(state["tasks"])
        generation, leader, members, term = state["view"]
        self.view = GroupView(generation, leader, tuple(members), term)
        self.plan = attrs.evolve(self.sharding.decode(text), version=version)
        self.plan_offset, self.stop_all = state["plan_offset"], state["stop_all"]
        self.stopped, self.running = dict(state["stopped"]), dict(state["running"])
        self.locks = {
            task: Lock(holder, token)
            for holder, held in state["locks"].items()
            for task, token in held.items()
        }
        self.checkpoints = {task: b64decode(value) for task, value in state["checkpoints"].items()}
        self.next_offset = self.snapshot_as_of = note.as_of

    def sorted_tasks(self) -> list[str]:
        return in_order(self.tasks)
