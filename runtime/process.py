"""What a node asks of the operating system before it begins, and what ends it from outside."""

import os
import resource
import signal
from typing import Final

import trio

from runtime.journal import Journal

PARENT_CHECK_S: Final = 0.5


def raise_descriptor_limit(wanted: int, journal: Journal) -> None:
    """A shell's usual 1024 are fewer than the clients this node lets in, and the log needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            journal.warning("few file descriptors: raise ulimit -n", hard=hard, wanted=wanted)
            wanted = hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def watch_signals(stop: trio.Event) -> None:
    """The first SIGTERM or SIGINT stops gracefully, a second one at once."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if stop.is_set():
                os._exit(1)
            stop.set()


async def watch_parent(pid: int, stop: trio.Event) -> None:
    """No orphans: stop when the launcher is gone, however it died."""
    while os.getppid() == pid:  # noqa: ASYNC110 (the kernel sends no event for it)
        await trio.sleep(PARENT_CHECK_S)
    stop.set()
