"""A whole node that can be made to fail from within; everything else about it is real.

`python -m tests.exam.hurt_node ORDERS --config ...`: files in the directory ORDERS are orders. The
node looks at them before it is built and then at every tick.

- `crash`: "POINT SKIP": the process ends (`os._exit`) at that point, after passing it SKIP times
- `stall`: it is renamed to `stalling`, and the event loop stands still until that file is gone, as
  in a long garbage collection
- `wall`: the system's wall clock is off by that many seconds; "strobe S P": it jumps to and fro by
  S seconds every P seconds

The product contains none of this, so nobody can set it by mistake, and it costs nothing. The points
are methods of the product's classes, wrapped before the node is built. If a method changes its
name, this program ends with an error; if a point is not passed, the test that waits for it fails.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import node
from broker.lifecycle.tiering import Tiering
from broker.proposals.intake import Intake
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from broker.transfer.driver import CatchingUp
from paxos.entry import EntryKind
from paxos.messages import Accept, Accepted, Commit, Learned
from paxos.multigroup import MultiGroup
from paxos.step import PromiseRecord
from runtime.peers.peers import Peers
from runtime.shell import Shell
from runtime.system.clock import LinuxClock
from storage.checkpoints import SUFFIX as CHECKPOINT_SUFFIX
from storage.checkpoints import TEMPORARY_SUFFIX
from storage.disk.files import RealDisk, RealFile, Then
from storage.format import SEGMENT_SUFFIX
from storage.identity import IDENTITY_NAME
from storage.log.synced_mark import MARK_NAME
from storage.log.wal import Wal
from tests.exam.points import CRASHED, TORN

STALL_LOOK_S = 0.01
Namer = Callable[..., str | None]
"""From a call's arguments to the name of the point it is, or None."""


class Orders:
    """The orders as of the last look."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._point, self._skip = "", 0

    def look(self) -> None:
        crash = self._read("crash")
        if crash and not self._point:
            self._point, skip = crash.split()
            self._skip = int(skip)
        stalling = self._directory / "stalling"
        if (self._directory / "stall").exists():
            (self._directory / "stall").rename(stalling)
            while stalling.exists():
                time.sleep(STALL_LOOK_S)

    def wall_offset_ns(self, boot_ns: int) -> int:
        words = self._read("wall").split()
        if not words:
            return 0
        if words[0] != "strobe":
            return round(float(words[0]) * 1e9)
        turn = boot_ns // round(float(words[2]) * 1e9) % 2
        return round(float(words[1]) * 1e9) * (1 if turn else -1)

    def _read(self, name: str) -> str:
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return ""

    def passing(self, point: str) -> bool:
        """Whether to die here and now."""
        if point != self._point:
            return False
        self._skip -= 1
        return self._skip < 0

    def pass_by(self, point: str) -> None:
        if self.passing(point):
            self.die()

    def die(self) -> None:
        (self._directory / "crash").unlink()
        os._exit(CRASHED)


def around(orders: Orders, owner: type, method: str, name_of: Namer) -> None:
    """Every call of the method is a point to die before, and one to die after."""
    original = getattr(owner, method)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self, *args)
        if name is None:
            return original(self, *args, **kwargs)
        orders.pass_by(f"{name}.before")
        result = original(self, *args, **kwargs)
        orders.pass_by(f"{name}.after")
        return result

    setattr(owner, method, wrapped)


# -- the points -----------------------------------------------------------------------------------


def of_write(file: RealFile, _buffers: Any, offset: int) -> str | None:
    if file.name.endswith(SEGMENT_SUFFIX):
        return "segment-switch" if offset == 0 else "wal-write"
    if file.name.endswith(TEMPORARY_SUFFIX):
        return "checkpoint-write"
    return "mark-write" if file.name == MARK_NAME else None


def of_sync(file: RealFile) -> str | None:
    if file.name.endswith(TEMPORARY_SUFFIX):
        return "checkpoint-fsync"
    return "fsync" if file.name.endswith(SEGMENT_SUFFIX) else None


def of_rename(_disk: RealDisk, _old: str, new: str) -> str | None:
    if new == IDENTITY_NAME:
        return "identity-rename"
    if new.endswith(CHECKPOINT_SUFFIX):
        return "checkpoint-rename"
    return "segment-rename" if new.endswith(SEGMENT_SUFFIX) else None


def of_message(_multi: MultiGroup, _now: Any, _sender: Any, message: Any, _step: Any) -> str | None:
    return {Accept: "accept-received", Commit: "learn", Learned: "catch-up"}.get(type(message))


def of_sending(_peers: Peers, _to: Any, message: Any) -> str | None:
    """Into the frame that leaves at the end of the round; `leaving` is for what has left."""
    if type(message) is Accept:
        return "steal" if message.entry.kind == EntryKind.STEAL else None
    return "vote" if type(message) is Accepted else None


def of_record(_wal: Wal, record: Any) -> str | None:
    return "promise" if type(record) is PromiseRecord else None


def leaving(orders: Orders) -> None:
    """Accepts: before they are in the frame, and after the frame has been given to the kernel."""
    send, flush = Peers.send, Peers.flush
    sent: list[bool] = []

    def noted_send(self: Peers, to: Any, message: Any) -> None:
        if type(message) is Accept:
            orders.pass_by("accept.before")
            sent.append(True)
        send(self, to, message)

    def noted_flush(self: Peers) -> None:
        flush(self)
        if sent:
            sent.clear()
            orders.pass_by("accept.after")

    setattr(Peers, "send", noted_send)  # noqa: B010 (mypy: a method is not assigned to)
    setattr(Peers, "flush", noted_flush)  # noqa: B010


def tearing(orders: Orders) -> None:
    """The first half of a write reaches the log's file, and nothing more."""
    pwritev = RealFile.pwritev

    def torn(self: RealFile, buffers: Any, offset: int) -> int:
        if of_write(self, buffers, offset) == "wal-write" and orders.passing(TORN):
            data = b"".join(buffers)
            os.pwrite(self._descriptor, data[: len(data) // 2], offset)
            orders.die()
        return pwritev(self, buffers, offset)

    setattr(RealFile, "pwritev", torn)  # noqa: B010


def kernel_writes(orders: Orders) -> None:
    """The same points with the kernel writing and syncing meanwhile: a write may be torn, and how
    far it is remains unknown from its beginning until it is known to be durable."""
    begin, finish = RealFile.begin_write, RealFile.finish_write
    following: list[Then] = []

    def noted_begin(
        self: RealFile, buffers: Any, offset: int, wakeup: int, then: Then | None = None
    ) -> bool:
        name = of_write(self, buffers, offset)
        orders.pass_by(f"{name}.before")
        if name == "wal-write" and orders.passing(TORN):
            data = b"".join(buffers)
            os.pwrite(self._descriptor, data[: len(data) // 2], offset)
            orders.die()
        begun = begin(self, buffers, offset, wakeup)  # the mark has points of its own: see below
        if begun:
            following[:] = [] if then is None else [then]
            orders.pass_by(f"{name}.after")
        return begun

    def noted_finish(self: RealFile, wait_s: float = 0.0) -> bool | None:
        orders.pass_by("fsync.before")
        durable = finish(self, wait_s)
        if durable:
            orders.pass_by("fsync.after")
            for mark, data, place in following:
                mark.pwritev([data], place)
        return durable

    setattr(RealFile, "begin_write", noted_begin)  # noqa: B010
    setattr(RealFile, "finish_write", noted_finish)  # noqa: B010


def install(orders: Orders) -> None:
    tearing(orders)
    kernel_writes(orders)
    around(orders, RealFile, "pwritev", of_write)
    around(orders, RealFile, "fdatasync", of_sync)
    around(orders, RealDisk, "rename", of_rename)
    around(orders, Wal, "stage", of_record)
    around(orders, MultiGroup, "on_message", of_message)
    leaving(orders)
    around(orders, Peers, "send", of_sending)
    around(orders, GroupMachine, "apply", lambda *_: "apply")
    around(orders, Intake, "applied", lambda *_: "answer")
    around(orders, Wal, "retire", lambda *_: "retire")
    around(orders, Tiering, "_copy", lambda *_: "settle-append")
    around(orders, PartitionState, "mark_tiered", lambda *_: "settle-drop")
    around(orders, CatchingUp, "_save", lambda *_: "install-write")
    around(orders, CatchingUp, "_install", lambda *_: "install")
    tick, wall_ns, boot_ns = Shell.tick, LinuxClock.wall_ns, LinuxClock.boot_ns

    def looking_tick(self: Shell) -> None:
        orders.look()
        tick(self)

    def wrong_wall_ns(self: LinuxClock) -> int:
        return wall_ns(self) + orders.wall_offset_ns(boot_ns(self))

    setattr(Shell, "tick", looking_tick)  # noqa: B010
    setattr(LinuxClock, "wall_ns", wrong_wall_ns)  # noqa: B010


def main(arguments: list[str]) -> int:
    orders = Orders(Path(arguments[0]))
    orders.look()
    install(orders)
    return node.main(list(itertools.islice(arguments, 1, None)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
