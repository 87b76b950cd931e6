"""What a node asks of the operating system before it begins, and what ends it."""

import encodings.ascii
import encodings.idna
import encodings.latin_1  # noqa: F401
import os
import resource
import signal
from typing import Final

import trio

from runtime.system.journal import Journal
from storage.errors import StorageError

PARENT_CHECK_S: Final = 0.5


RESERVED_MAX: Final = 1024
"""File descriptors for segments, cold files, checkpoints, links and HTTP."""


def descriptor_limit() -> int:
    """How many files this process may have open; asked anew, because it can be changed outside."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def connections_for(descriptors: int) -> int:
    """How many of so many descriptors clients may have: where there are few, half of them."""
    return max(1, descriptors - min(RESERVED_MAX, descriptors // 2))


def raise_descriptor_limit(wanted: int, journal: Journal) -> None:
    """A shell's usual 1024 are fewer than the clients this node lets in, and the log needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            journal.warning(
                "few file descriptors: raise ulimit -n",
                hard=hard,
                wanted=wanted,
                connections=connections_for(hard),
            )
            wanted = hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def watch_signals(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The first SIGTERM or SIGINT stops gracefully, a second one at once."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            if stop.is_set():
                os._exit(1)
            stop.set()


async def watch_parent(pid: int, stop: trio.Event) -> None:
    """No orphans: stop when the launcher is gone, however it died."""
    while os.getppid() == pid:  # noqa: ASYNC110 (the kernel sends no event for it)
        await trio.sleep(PARENT_CHECK_S)
    stop.set()


def leaves(group: BaseExceptionGroup[StorageError]) -> list[StorageError]:
    """trio wraps what a task raises into groups: what was raised at first."""
    found: list[StorageError] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
