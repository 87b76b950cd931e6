"""A member of a task group in a process of its own, to be stopped, killed, stalled and cut off.

`python -m tests.evenkeel.tasks.hurt_member '{"name": ..., ...}'`. It writes its history to a file.
Its connections go through relays of the test (a node's port -> a relay's), which can be cut. Every
task writes into a store that refuses old tokens. If the file `stall` names it, one of its tasks
reports that and blocks the whole process until the file is gone. Then it writes without checking
its lease, as careless code does.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import trio

from evenkeel import ClientConfig, TaskGroup, TaskGroupConfig, TaskLease, Timing, largest_offset
from evenkeel.tasks import group
from evenkeel.tasks.member import NEVER, Member
from tests.evenkeel.tasks.histories import Line, What

TIMING: Final = Timing(
    lease_ms=2000, renew_ms=300, drift_ms_max=50, stop_ms=500, ack_timeout_ms=1500
)
WORK_S: Final = 0.02
SESSION_MS: Final = 1500
TRIES: Final = 50
"""For a file that others write to for a moment, 50 times a second."""

open_tcp_stream = trio.open_tcp_stream


class Store:
    """What tasks write to: a file each, with the largest token that has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, task: str, token: int) -> bool | None:
        """False if it is refused: the token is smaller than an earlier one.

        None: the file is locked. The caller does not wait and has written nothing: the process that
        holds the lock may have been stopped at that very moment.
        """
        with (self.folder / task).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            file.seek(0)
            largest = int(file.read() or 0)
            if token >= largest:
                file.truncate(0)
                file.write(str(token))
            return token >= largest


class HurtMember:
    def __init__(self, orders: dict[str, Any]) -> None:
        self.name: str = orders["name"]
        self.folder = Path(orders["folder"])
        self.store = Store(self.folder / "store")
        self.history = os.open(
            self.folder / f"history-{self.name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT
        )
        # A member that misses answers ends its session, and with it its tasks. The planted bug must
        # be found without that second line of defence, however late the others are.
        unheard_ms = 60_000 if orders["immortal"] else 1000
        self.relays = {int(port): relay for port, relay in orders["relays"].items()}
        self.group = TaskGroup(
            orders["bootstrap"],
            orders["group"],
            TaskGroupConfig(
                name=self.name,
                metadata={"offset": orders["offset"]},
                election=largest_offset,
                timing=TIMING,
                session_timeout_ms=SESSION_MS,
                heartbeat_ms=100,
                rebalance_timeout_ms=SESSION_MS,
            ),
            client=ClientConfig(request_timeout_ms=unheard_ms, connect_timeout_ms=1000),
        )

    async def open(self, host: str, port: int) -> trio.SocketStream:
        return await open_tcp_stream(host, self.relays[port])

    def say(self, what: What, lease: TaskLease, at_ns: int | None = None) -> None:
        """In one write, so that a kill leaves no half of a line between two."""
        at_ns = time.monotonic_ns() if at_ns is None else at_ns
        line = Line(at_ns, what, lease.task, lease.token, self.group.session)
        os.write(self.history, line.text().encode())

    async def work(self, lease: TaskLease) -> None:
        self.say(What.STARTED, lease)
        try:
            while True:
                at_ns = time.monotonic_ns()
                if lease.held:
                    # Recorded when it is in the store: from then on older tokens are refused.
                    written = self.store.write(lease.task, lease.token)
                    self.say(What.WORKED, lease, at_ns)
                    if written is False:
                        self.say(What.REFUSED, lease)
                self.obey(lease)
                await trio.sleep(WORK_S)
        finally:
            at_ns = time.monotonic_ns()
            self.say(What.STOPPED if lease.held else What.LOST, lease, at_ns)

    def obey(self, lease: TaskLease) -> None:
        if not self.is_told_to_stall():
            return
        (self.folder / "stalled").touch()
        while self.is_told_to_stall():
            time.sleep(WORK_S)
        for _ in range(TRIES):
            written = self.store.write(lease.task, lease.token)
            if written is not None:
                break
            time.sleep(WORK_S)
        if written is False:
            self.say(What.REFUSED, lease)

    def is_told_to_stall(self) -> bool:
        try:
            return (self.folder / "stall").read_text() == self.name
        except FileNotFoundError:
            return False

    async def run(self) -> None:
        async with self.group, trio.open_nursery() as nursery:
            nursery.start_soon(self.tell)
            await self.group.run(self.work)

    async def tell(self) -> None:
        """Into the log, for whoever has to find out what went wrong."""
        while True:
            counts = self.group.statistics()
            sys.stderr.write(f"{time.monotonic():.3f} {self.group.session} {counts}\n")
            await trio.sleep(1)


class Immortal(Member):
    """A planted bug: a lease that never ends."""

    def _renewed(self, beat: int) -> None:
        self.until_ns = NEVER


if __name__ == "__main__":
    orders = json.loads(sys.argv[1])
    if orders["immortal"]:
        group.Member = Immortal  # type: ignore[misc]
    member = HurtMember(orders)
    trio.open_tcp_stream = member.open  # type: ignore[assignment]
    trio.run(member.run)
