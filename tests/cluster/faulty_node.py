"""A whole node whose disk does what the files of a directory say; everything else is real.

`python -m tests.cluster.faulty_node FAULTS --config ...`: while FAULTS has a file `eio-fsync`,
every fdatasync fails; with `eio-write`, every write of a segment fails. `room` contains the number
of bytes that the data directory may have; `slow-sync` contains the milliseconds by which every
fdatasync is slower. Failures are counted: the node must try nothing twice. The same files apply to
writes that the kernel makes durable by itself: they fail at their end or at their beginning, or are
slow.
"""

import errno
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import node
from storage.disk import direct
from storage.disk.kernel_writes import KernelWrites
from storage.format import SEGMENT_SUFFIX

FAULTS = Path(sys.argv[1])
fdatasync, fstatvfs, pwritev = os.fdatasync, os.fstatvfs, os.pwritev


class Room:
    """What statvfs reports for a file system of that size."""

    f_frsize = 512

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        used = 0
        for name in os.listdir(f"/proc/self/fd/{descriptor}"):
            used += os.stat(name, dir_fd=descriptor).st_blocks * 512
        self.f_bavail = max(0, bytes_max - used) // self.f_frsize


def fail(fault: str, descriptor: int) -> None:
    """If ordered, fail for files of the log, and leave a trace: a line with the time."""
    if (FAULTS / fault).exists() and is_segment(descriptor):
        with (FAULTS / f"{fault}-met").open("a") as met:
            met.write(f"{time.monotonic_ns()} {os.readlink(f'/proc/self/fd/{descriptor}')}\n")
        raise OSError(errno.EIO, "injected")


def is_segment(descriptor: int) -> bool:
    return os.readlink(f"/proc/self/fd/{descriptor}").endswith(SEGMENT_SUFFIX)


def delay_s() -> float:
    with suppress(FileNotFoundError):
        return float((FAULTS / "slow-sync").read_text()) / 1_000
    return 0.0


def faulty_fdatasync(descriptor: Any) -> None:
    fail("eio-fsync", descriptor)
    fdatasync(descriptor)
    time.sleep(delay_s())


def failing_pwritev(descriptor: Any, buffers: Any, offset: int) -> int:
    fail("eio-write", descriptor)
    return pwritev(descriptor, buffers, offset)


def wake(eventfd: int) -> None:
    with suppress(OSError):  # it may be closed: the node has stopped meanwhile
        os.eventfd_write(eventfd, 1)


class FaultyWrites(KernelWrites):
    """The kernel reports that a write is durable; with `slow-sync` the report is passed on
    later."""

    def begin(self, descriptor: int, memory: Any, offset: int, eventfd: int, *more: Any) -> bool:
        fail("eio-write", descriptor)
        self.descriptor = descriptor
        delay = delay_s()
        self.not_before_s = time.monotonic() + delay
        if not super().begin(descriptor, memory, offset, eventfd, *more):
            return False
        if delay:
            timer = threading.Timer(delay + 0.001, wake, (eventfd,))
            timer.daemon = True
            timer.start()
        return True

    def result(self, wait_s: float = 0.0) -> int | None:
        left_s = self.not_before_s - time.monotonic()
        if left_s > wait_s:
            return None
        time.sleep(max(0.0, left_s))
        result = super().result(wait_s)
        if result is not None:
            fail("eio-fsync", self.descriptor)
        return result


def small_fstatvfs(descriptor: int) -> Any:
    try:
        room = int((FAULTS / "room").read_text())
    except FileNotFoundError:
        return fstatvfs(descriptor)
    return Room(descriptor, room)


if __name__ == "__main__":
    os.fdatasync, os.fstatvfs, os.pwritev = faulty_fdatasync, small_fstatvfs, failing_pwritev
    direct.KernelWrites = FaultyWrites
    sys.exit(node.main(sys.argv[2:]))
