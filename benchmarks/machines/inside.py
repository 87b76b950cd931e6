"""Run a command inside a network namespace: `python inside.py NAMESPACE COMMAND...`.

NAMESPACE is a path such as /proc/PID/ns/net or /proc/PID/fd/N. The command replaces this program
and keeps its process id, so whatever watches or signals this process does so to the command. Needs
CAP_SYS_ADMIN, which root has (setns(2)). Only the standard library: it runs with `-I -S`.
"""

import ctypes
import os
import sys
from typing import Final

CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def enter(namespace: int) -> None:
    """Move the calling thread into a network namespace, by its descriptor.

    Everything the thread starts from now on is inside as well: processes, threads, sockets. What
    existed before stays where it was.

    Raises:
        OSError: if it is not allowed, or not a network namespace.
    """
    if _LIBC.setns(namespace, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"setns(CLONE_NEWNET): {os.strerror(error)}")


def leave_for_a_new_one() -> None:
    """Move the calling thread into a new network namespace.

    Raises:
        OSError: if it is not allowed.
    """
    if _LIBC.unshare(CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"unshare(CLONE_NEWNET): {os.strerror(error)}")


def main(arguments: list[str]) -> None:
    path, command = arguments[0], arguments[1:]
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    enter(namespace)
    os.close(namespace)
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
