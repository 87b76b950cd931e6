"""Whether this machine supports asynchronous direct writes, found without the product's code: so a
test is skipped only because of the machine, never because of a bug of ours."""

import ctypes
import os
from pathlib import Path

import pytest

IO_URING_SETUP = 425
PARAMETERS_BYTES = 120
FILE_SYSTEMS = ("ext4", "xfs")
"""File systems that carry out such writes in the background; others may do so or refuse."""


def skip_without_kernel_writes(directory: Path) -> None:
    """Skip the running test if files of `directory` cannot be written to in that way."""
    reason = refusal_of_kernel_writes(directory)
    if reason is not None:
        pytest.skip(f"asynchronous direct writes are refused here: {reason}")


def refusal_of_kernel_writes(directory: Path) -> str | None:
    """Why files of `directory` cannot be written to in that way; None if they can."""
    found = _file_system(directory)
    if found not in FILE_SYSTEMS:
        return f"a file system of kind {found}"
    probe = directory / "probe"
    probe.write_bytes(bytes(4096))
    try:
        os.close(os.open(probe, os.O_RDWR | os.O_DIRECT))
    except OSError as error:
        return f"O_DIRECT: {error.strerror}"
    finally:
        probe.unlink()
    call = ctypes.CDLL(None, use_errno=True).syscall
    ring = call(IO_URING_SETUP, 1, ctypes.create_string_buffer(PARAMETERS_BYTES))
    if ring < 0:
        return f"io_uring_setup: {os.strerror(ctypes.get_errno())}"
    os.close(ring)
    return None


def _file_system(directory: Path) -> str:
    """The type of the mount that `directory` is on (proc_pid_mountinfo(5))."""
    device = os.stat(directory).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == name:
            return kind.split()[0]
    return "unknown"
