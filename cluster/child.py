"""Run a command that cannot outlive its parent: `python child.py PARENT_PID COMMAND...`.

The kernel is asked to kill this process when its parent dies (prctl(2), PR_SET_PDEATHSIG), and then
the command takes its place; the wish survives execve(2). SIGKILL, because a stopped process must go
too, and because a node must survive it anyway. It is done here, in a process of its own, and not by
`preexec_fn`, which runs Python between fork and exec of a program with threads.

Beware: the signal comes when the *thread* that started this process ends. So it is started from the
launcher's main thread, never from a worker thread (as `trio.lowlevel.open_process` does).
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
EXIT_ORPHANED: Final = 75


def main(arguments: list[str]) -> None:
    parent, command = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    if os.getppid() != parent:
        sys.exit(EXIT_ORPHANED)  # it died before we had asked
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
