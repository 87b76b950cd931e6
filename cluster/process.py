"""One child process of the launcher: started so that it cannot outlive it, watched, signalled.

Signals go through a pidfd (pidfd_send_signal(2)), so they can never hit another process that got
the number of a dead child.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import trio

from cluster import child

TAIL_LINES: Final = 5


class Process:
    """A running or ended child. Made by `start`; somebody must await `wait`, which reaps it."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self._reaping = trio.Lock()

    @classmethod
    def start(
        cls, command: Sequence[str], *, log: Path | None, env: Mapping[str, str]
    ) -> "Process":
        """Start `command` with its output appended to `log`, or to our own output without one; it
        is killed when we die.

        It has a process group of its own: Ctrl-C in the terminal is for the launcher, which then
        stops the children in order. Starting takes milliseconds, and must be done on the main
        thread.
        """
        assert threading.current_thread() is threading.main_thread(), "see child.py"
        guard = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
        with nullcontext() if log is None else log.open("ab") as output:
            return cls(
                subprocess.Popen(
                    [*guard, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=None if output is None else subprocess.STDOUT,
                    env=dict(env),
                    process_group=0,
                )
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """As in subprocess: negative for a signal, None while it runs."""
        return self._popen.returncode

    @property
    def ending(self) -> str:
        """How it ended, in words; it must have ended."""
        code = self.exit_code
        assert code is not None
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def send(self, number: signal.Signals) -> bool:
        """Whether there was still a process to take the signal."""
        if self._popen.returncode is not None:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return False
        return True

    async def wait(self) -> int:
        """Wait for its end and reap it; several tasks may wait."""
        async with self._reaping:
            if self._popen.returncode is None:
                await trio.lowlevel.wait_readable(self._pidfd)
                self._popen.wait()
                os.close(self._pidfd)
        assert self._popen.returncode is not None
        return self._popen.returncode


def tail(log: Path) -> str:
    """The last lines of a child's log."""
    with log.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, maxlen=TAIL_LINES)).rstrip() or "(nothing)"
