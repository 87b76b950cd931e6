"""What a task group reports to its user: events, and the lease on a task."""

from collections.abc import Mapping
from typing import Final, Protocol

import attrs
import trio

from evenkeel.tasks.ledger import Ledger

NS_PER_S: Final = 1_000_000_000


class LeaseKeeper(Protocol):
    """Keeps leases: the task group."""

    def lease_left_ns(self, lease: "TaskLease") -> int: ...

    def lease_ended(self, lease: "TaskLease", *, finished: bool) -> None: ...

    async def write_checkpoint(self, lease: "TaskLease", value: bytes) -> None: ...


@attrs.define(eq=False)
class TaskLease:
    """A task that is ours. `token` is larger than that of any earlier holder: pass it to whatever
    the task writes to, and let that refuse smaller tokens."""

    task: str
    token: int
    checkpointed: bytes
    """The last checkpoint of its earlier holder; empty if there is none."""
    _keeper: LeaseKeeper
    stopping: bool = False
    """The task must stop, and its lease be released."""
    lost: bool = False
    """The task must stop because we have lost it: another member does what is not done by now."""
    ended: bool = False
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    @property
    def held(self) -> bool:
        """Whether it is certain that no other member runs this task at this moment.

        This compares clocks and waits for nothing: after a pause of the process it is false at
        once, before anything has been cancelled.
        """
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """How long the lease holds unless it is renewed; 0 if it is not held."""
        return 0.0 if self.ended else self._keeper.lease_left_ns(self) / NS_PER_S

    def release(self) -> None:
        """The task has stopped: another member may have it. Call this after a `TaskStopping`; `run`
        does so itself."""
        self._keeper.lease_ended(self, finished=False)

    def finish(self) -> None:
        """The task is done for good and leaves the task group. `run` does this when the function
        returns."""
        self._keeper.lease_ended(self, finished=True)

    async def checkpoint(self, value: bytes) -> None:
        """Record how far the task has come, for its next holder.

        Raises:
            LeaseLostError: if the task was no longer ours; then nothing is recorded.
        """
        await self._keeper.write_checkpoint(self, value)


@attrs.frozen
class TaskStarted:
    """A task is ours from now on."""

    lease: TaskLease


@attrs.frozen
class TaskStopping:
    """A task has to stop; release its lease when it has stopped."""

    lease: TaskLease


@attrs.frozen
class GroupChanged:
    """Another generation: its members and its leader."""

    generation: int
    leader: str
    members: tuple[str, ...]


@attrs.frozen
class PlanChanged:
    """A plan has been recorded. Plans come in order, and a present member sees all of them."""

    version: int
    shares: Mapping[str, tuple[str, ...]]


@attrs.frozen
class PlanDone:
    """All members have reported that they run what the plan gives them."""

    version: int


@attrs.frozen
class Notice:
    """A message that a member sent to all with `notify`."""

    by: str
    payload: bytes


TaskEvent = TaskStarted | TaskStopping | GroupChanged | PlanChanged | PlanDone | Notice


@attrs.frozen(kw_only=True)
class TaskGroupState:
    """What a member has read: the same for all members that have read as far."""

    read_up_to: int
    generation: int
    leader: str
    members: tuple[str, ...]
    """Of the generation, the oldest first."""
    tasks: tuple[str, ...]
    plan_version: int
    shares: Mapping[str, tuple[str, ...]]
    stopped: Mapping[str, int]
    """The plan each member has stopped for: the first acknowledgement."""
    running: Mapping[str, int]
    """The plan each member runs in full: the second acknowledgement."""
    holders: Mapping[str, str]
    """The holder of the lock of each running task."""
    tokens: Mapping[str, int]

    @classmethod
    def of(cls, ledger: Ledger) -> "TaskGroupState":
        return cls(
            read_up_to=ledger.next_offset,
            generation=ledger.view.generation,
            leader=ledger.view.leader,
            members=ledger.view.members,
            tasks=tuple(ledger.sorted_tasks()),
            plan_version=ledger.plan.version,
            shares=dict(ledger.plan.owners),
            stopped=dict(ledger.stopped),
            running=dict(ledger.running),
            holders={task: lock.holder for task, lock in sorted(ledger.locks.items())},
            tokens={task: lock.token for task, lock in sorted(ledger.locks.items())},
        )


@attrs.frozen(kw_only=True)
class TaskGroupStatistics:
    """Totals since the start."""

    sessions: int
    """Each session after the first means that the one before was lost."""
    lost_because: str
    """Why the session before the present one ended."""
    notes_written: int
    notes_failed: int
    notes_read: int
    notes_void: int
    trims_failed: int
    """How often old notes could not be deleted; that does no harm."""
    events_dropped: int
