"""Faults for real processes: sudden death (SIGKILL), and a pause (SIGSTOP, SIGCONT).

Each returns when the fault has taken effect, so a test need not sleep.
"""

import signal
from pathlib import Path
from typing import Final

import trio

from cluster.process import Process

EFFECT_S_MAX: Final = 10.0
LOOK_EVERY_S: Final = 0.005


class ChaosError(RuntimeError):
    """The process is not in a state for this fault."""


async def kill(process: Process) -> None:
    """SIGKILL: nothing is flushed, drained or announced. The watcher of the process reaps it."""
    _signal(process, signal.SIGKILL)
    with trio.fail_after(EFFECT_S_MAX):
        await process.wait()


async def pause(process: Process) -> None:
    """SIGSTOP: its sockets stay open but it does not answer, like a VM that is being moved."""
    _signal(process, signal.SIGSTOP)
    await _until_stopped(process, stopped=True)


async def resume(process: Process) -> None:
    """SIGCONT: it continues, with clocks that have jumped."""
    _signal(process, signal.SIGCONT)
    await _until_stopped(process, stopped=False)


def _signal(process: Process, number: signal.Signals) -> None:
    if not process.send(number):
        raise ChaosError("it is not running")


async def _until_stopped(process: Process, *, stopped: bool) -> None:
    with trio.fail_after(EFFECT_S_MAX):
        # Only wait(2) would report a stop, and that would steal the exit code.
        while process.exit_code is None and is_stopped(process.pid) != stopped:  # noqa: ASYNC110
            await trio.sleep(LOOK_EVERY_S)


def is_stopped(pid: int) -> bool:
    """Whether the kernel shows the process as stopped (proc(5): state T after the name)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"
