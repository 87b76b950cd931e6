"""What tests of task groups on a real cluster share."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from evenkeel import (
    ClientConfig,
    TaskGroup,
    TaskGroupConfig,
    TaskGroupState,
    TaskLease,
    Timing,
    member_name,
)

STEP_S: Final = 40.0
QUICK: Final = Timing(lease_ms=4000, renew_ms=500, drift_ms_max=100, stop_ms=1000)
CLIENT: Final = ClientConfig(request_timeout_ms=3_000)


def quick(name: str = "", **settings: object) -> TaskGroupConfig:
    known: dict[str, object] = {
        "name": name,
        "timing": QUICK,
        "heartbeat_ms": 100,
        "session_timeout_ms": 3_000,
    }
    return TaskGroupConfig(**(known | settings))  # type: ignore[arg-type]


class Worker:
    """A member that runs what it is given, and remembers it."""

    def __init__(self, bootstrap: str, group: str, config: TaskGroupConfig) -> None:
        self.name = config.name
        self.group = TaskGroup(bootstrap, group, config, client=CLIENT)
        self.running: dict[str, TaskLease] = {}
        self.started: list[tuple[str, int]] = []
        self.stopped: list[tuple[str, int]] = []
        self._scope = trio.CancelScope()
        self.gone = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self._scope:
                async with self.group:
                    task_status.started()
                    await self.group.run(self.work)
        finally:
            self.gone.set()

    async def work(self, lease: TaskLease) -> None:
        self.running[lease.task] = lease
        self.started.append((lease.task, lease.token))
        try:
            await trio.sleep_forever()
        finally:
            del self.running[lease.task]
            self.stopped.append((lease.task, lease.token))

    async def stop(self) -> None:
        """As a user does at the end."""
        self.group.stop()
        await self.gone.wait()

    async def cancel(self) -> None:
        """As a user's failing program does."""
        self._scope.cancel()
        await self.gone.wait()

    @property
    def share(self) -> set[str]:
        return set(self.running)


@asynccontextmanager
async def workers(bootstrap: str, group: str) -> AsyncIterator["Crew"]:
    async with trio.open_nursery() as nursery:
        crew = Crew(bootstrap, group, nursery)
        yield crew
        for worker in crew.workers.values():
            if not worker.gone.is_set():
                await worker.stop()


class Crew:
    """Members of one group, all in this process."""

    def __init__(self, bootstrap: str, group: str, nursery: trio.Nursery) -> None:
        self.bootstrap = bootstrap
        self.name = group
        self.workers: dict[str, Worker] = {}
        self._nursery = nursery

    async def add(self, name: str, **settings: object) -> Worker:
        worker = Worker(self.bootstrap, self.name, quick(name, **settings))
        await self._nursery.start(worker.run)
        self.workers[name] = worker
        return worker

    @property
    def there(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if not worker.gone.is_set()]

    def shares(self) -> dict[str, set[str]]:
        return {worker.name: worker.share for worker in self.there}

    async def until(self, condition: Callable[[TaskGroupState], bool]) -> TaskGroupState:
        """Wait until all members have read that, and run what the plan says."""

        def settled(state: TaskGroupState) -> bool:
            return condition(state) and dict(state.holders) == {
                task: owner for owner, tasks in state.shares.items() for task in tasks
            }

        with trio.fail_after(STEP_S):
            for worker in self.there:
                state = await worker.group.wait_for(settled)
            while True:
                planned = {member_name(one): set(tasks) for one, tasks in state.shares.items()}
                if all(planned.get(name, set()) == has for name, has in self.shares().items()):
                    return state
                await trio.sleep(0.01)
