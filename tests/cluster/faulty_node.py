"""A whole node whose disk does what the files of a directory say; everything else is real.

`python -m tests.cluster.faulty_node FAULTS --config ...`: if FAULTS holds a file `eio`, every
fdatasync fails; if it holds a file `room`, the data directory may have as many bytes as it says.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import node

FAULTS = Path(sys.argv[1])
fdatasync, fstatvfs = os.fdatasync, os.fstatvfs


class Room:
    """What statvfs would say of a file system that small."""

    f_frsize = 512

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        used = 0
        for name in os.listdir(f"/proc/self/fd/{descriptor}"):
            used += os.stat(name, dir_fd=descriptor).st_blocks * 512
        self.f_bavail = max(0, bytes_max - used) // self.f_frsize


def failing_fdatasync(descriptor: Any) -> None:
    if (FAULTS / "eio").exists():
        raise OSError(errno.EIO, "injected")
    fdatasync(descriptor)


def small_fstatvfs(descriptor: int) -> Any:
    try:
        room = int((FAULTS / "room").read_text())
    except FileNotFoundError:
        return fstatvfs(descriptor)
    return Room(descriptor, room)


if __name__ == "__main__":
    os.fdatasync, os.fstatvfs = failing_fdatasync, small_fstatvfs
    sys.exit(node.main(sys.argv[2:]))
