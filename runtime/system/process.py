"""Limits that a node sets before it starts, and the signals that stop it."""

import encodings.ascii
import encodings.idna
import encodings.latin_1  # noqa: F401
import gc
import os
import resource
import signal
from collections.abc import Callable
from typing import Final

import trio

from runtime.system.journal import Journal
from storage.errors import StorageError

PARENT_CHECK_S: Final = 0.5
YOUNG_OBJECTS_MAX: Final = 10_000
"""The garbage collector's threshold of generation 0. A round under load makes and drops thousands
of objects, none of them in a cycle; with Python's default of 700 the collector examined them in
every round: 3.5 % of a busy node's time."""
YOUNG_LOOKS_MAX: Final = 1
"""The threshold of generation 1. A collection then examines 30,000 objects, while all threads wait:
4 ms. With Python's default of 10, a request that names 50,000 things made it 25 ms."""
MIDDLE_LOOKS_MAX: Final = 80
"""The threshold of generation 2, so that full collections are as rare as by default."""
COLLECTOR: Final = (YOUNG_OBJECTS_MAX, YOUNG_LOOKS_MAX, MIDDLE_LOOKS_MAX)


RESERVED_MAX: Final = 1024
"""File descriptors for segments, cold files, checkpoints, links and HTTP."""


def collect_rarely() -> None:
    """Set the garbage collector for a node that is about to serve."""
    gc.collect()
    gc.freeze()  # what was built so far lives as long as the process
    gc.set_threshold(*COLLECTOR)


def descriptor_limit() -> int:
    """How many files this process may have open now; another process can change the limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def connections_for(descriptors: int) -> int:
    """How many descriptors client connections may use: all but RESERVED_MAX, or at least half."""
    return max(1, descriptors - min(RESERVED_MAX, descriptors // 2))


def raise_descriptor_limit(wanted: int, journal: Journal) -> None:
    """Raise the limit to `wanted`, or as far as allowed, with a warning. The usual limit of 1024 is
    less than the clients that a node accepts, and the log needs some too."""
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
    stop: trio.Event,
    on_hangup: Callable[[], None] | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Stop gracefully at the first SIGTERM or SIGINT, at once at the second. SIGHUP calls
    `on_hangup`; without one it ends the process, as usual."""
    watched = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if on_hangup else [])]
    with trio.open_signal_receiver(*watched) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP and on_hangup is not None:
                on_hangup()
                continue
            if stop.is_set():
                os._exit(1)
            stop.set()


async def watch_parent(pid: int, stop: trio.Event) -> None:
    """Stop when the parent process is gone, however it died, so that no node is left behind."""
    while os.getppid() == pid:  # noqa: ASYNC110 (the kernel sends no event for it)
        await trio.sleep(PARENT_CHECK_S)
    stop.set()


def leaves(group: BaseExceptionGroup[StorageError]) -> list[StorageError]:
    """The original exceptions in the (nested) groups that trio wraps them into."""
    found: list[StorageError] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
