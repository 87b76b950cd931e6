"""The fuzzing engine: what a target is, what a finding is, and the loop that looks for findings.

Theory of operation. A target declares its errors and runs one input; it returns the *features* of
what happened (which error, in which field; which answer, with which codes). An input with a new
feature is kept and mutated further: a poor man's coverage, blind to branches, but free,
deterministic, and precise here, because our decoders say where they failed. Where atheris is
installed, guided.py drives the same targets by branch coverage instead.

Three things are findings: any undeclared error (including a failed assertion of the target, say
about a round trip), more than CPU_MS_MAX of CPU time, more than MEMORY_BYTES_MAX of memory. A
finding prints the seed, the input's bytes, and how to run it again.
"""

import gc
import re
import resource
import signal
import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import ClassVar, Final, NoReturn

import attrs

from tests.fuzz.mutate import INPUT_BYTES_MAX, Sample, mutated

CPU_MS_MAX: Final = 50
"""For one input of up to INPUT_BYTES_MAX."""
MEMORY_BYTES_MAX: Final = 64 << 20
HANG_CPU_S: Final = 5
"""An input that takes this long is given up: it may never end."""
RSS_STEP_KIB: Final = 2 << 10
"""A peak that rises by this much is examined with tracemalloc."""
POOL_MAX: Final = 4_000
FEATURE_CHARS_MAX: Final = 120

_NUMBERS: Final = re.compile(r"\b0x[0-9a-f]+\b|-?\d+")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|«[^»]*»")


class Target(ABC):
    """One decoder under test. `run` may raise `declared` errors; anything else is a finding."""

    name: ClassVar[str]
    declared: ClassVar[tuple[type[Exception], ...]] = ()
    cpu_ms_max: ClassVar[int] = CPU_MS_MAX

    @abstractmethod
    def samples(self, dice: Random) -> Iterable[Sample]:
        """Valid inputs to begin with."""

    @abstractmethod
    def run(self, data: bytes) -> Iterable[str]:
        """Run one input; returns the features of what happened."""

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        return mutated(sample, dice, pool)

    def marked(self, data: bytes) -> Sample:
        """A kept input with its marks, as far as they can be found again."""
        return Sample(data)


class Finding(AssertionError):
    """An input that breaks a limit or a rule."""

    def __init__(self, target: str, data: bytes, what: str) -> None:
        self.target, self.data, self.what = target, data, what
        super().__init__(f"{target}: {what}\ninput ({len(data)} bytes): {data.hex()}")


class _HangError(BaseException):
    """Raised by the alarm, wherever an input is stuck."""


def feature_of(error: Exception) -> str:
    """An error's class and message, without what varies from input to input."""
    words = _QUOTED.sub("Q", _NUMBERS.sub("N", str(error)))
    return f"{type(error).__name__}: {words}"[:FEATURE_CHARS_MAX]


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _HangError


def _run(target: Target, data: bytes) -> frozenset[str]:
    try:
        return frozenset(target.run(data))
    except target.declared as error:
        return frozenset((feature_of(error),))


@contextmanager
def _alarm() -> Iterator[None]:
    """After HANG_CPU_S of CPU time the run is given up."""
    before = signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def memory_of(target: Target, data: bytes) -> int:
    """The most memory this input holds at once."""
    tracemalloc.start()
    try:
        _run(target, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def cpu_ms_of(target: Target, data: bytes) -> float:
    """CPU time of one run without garbage collection, which would be charged to the next one."""
    gc.disable()
    try:
        began = time.thread_time_ns()
        _run(target, data)
        return (time.thread_time_ns() - began) / 1e6
    finally:
        gc.enable()


@attrs.define
class Slowest:
    cpu_ms: float = 0.0
    memory_bytes: int = 0


def execute(
    target: Target, data: bytes, worst: Slowest | None = None, *, weigh: bool = False
) -> frozenset[str]:
    """Run one input and hold it against all limits (memory only with `weigh`); its features.

    Raises:
        Finding: it breaks one of them.
    """
    began = time.thread_time_ns()
    try:
        with _alarm():
            features = _run(target, data)
    except _HangError:
        raise Finding(target.name, data, f"more than {HANG_CPU_S} s of processor time") from None
    except Exception as error:
        what = f"{type(error).__name__}, which is not declared: {error}"
        raise Finding(target.name, data, what) from error
    cpu_ms = (time.thread_time_ns() - began) / 1e6
    if cpu_ms > (target.cpu_ms_max if worst is None else min(target.cpu_ms_max, worst.cpu_ms)):
        # a collection, or a first time? only what repeats counts
        cpu_ms = min(cpu_ms, *(cpu_ms_of(target, data) for _ in range(3)))
        if cpu_ms > target.cpu_ms_max:
            raise Finding(target.name, data, f"{cpu_ms:.0f} ms of processor time")
    memory = memory_of(target, data) if weigh else 0
    if memory > MEMORY_BYTES_MAX:
        raise Finding(target.name, data, f"{memory >> 20} MiB of memory")
    if worst is not None:
        worst.cpu_ms = max(worst.cpu_ms, cpu_ms)
        worst.memory_bytes = max(worst.memory_bytes, memory)
    return features


def peak_rss_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@attrs.define(eq=False)
class Campaign:
    """One target, one seed, as many executions as there is budget for."""

    target: Target
    seed: int
    corpus: Sequence[bytes] = ()
    executions: int = 0
    worst: Slowest = attrs.Factory(Slowest)
    seen: set[str] = attrs.Factory(set)
    found: dict[str, bytes] = attrs.Factory(dict)
    """For each feature that no sample and no kept input has: the first input that had it."""
    _dice: Random = attrs.field(init=False)
    _pool: list[Sample] = attrs.Factory(list)
    _rss_kib: int = 0

    def __attrs_post_init__(self) -> None:
        self._dice = self.fresh_dice()

    def fresh_dice(self) -> Random:
        """The dice of the campaign in their first state."""
        return Random(f"{self.seed} {self.target.name}")

    def begin(self) -> None:
        """Run the samples and the kept corpus: none of them may be a finding."""
        for sample in self.target.samples(self._dice):
            self._pool.append(sample)
            self._execute(sample.data)
        for data in self.corpus:
            self._pool.append(self.target.marked(data))
            self._execute(data)
        self._rss_kib = peak_rss_kib()

    def _execute(self, data: bytes) -> frozenset[str]:
        """Run it; returns the new features."""
        self.executions += 1
        new = execute(self.target, data, self.worst) - self.seen
        self.seen |= new
        return new

    def step(self) -> None:
        """Mutate one input and run it; keep it if something new happened."""
        dice, pool = self._dice, self._pool
        recent = dice.random() < 0.3
        base = pool[-1 - dice.randrange(min(len(pool), 50))] if recent else dice.choice(pool)
        data = self.target.mutate(base, dice, pool)[:INPUT_BYTES_MAX]
        new = self._execute(data)
        rss_kib = peak_rss_kib()
        if rss_kib > self._rss_kib + RSS_STEP_KIB:
            execute(self.target, data, self.worst, weigh=True)
            self._rss_kib = rss_kib
        if new:
            self._keep(data, new)

    def _keep(self, data: bytes, new: frozenset[str]) -> None:
        """A new feature: measure its memory, keep it, mutate it further."""
        execute(self.target, data, self.worst, weigh=True)
        self.found.update(dict.fromkeys(sorted(new), data))
        if len(self._pool) < POOL_MAX:
            self._pool.append(self.target.marked(data))

    def run(self, executions: int) -> None:
        """Run that many mutants."""
        for _ in range(executions):
            self.step()
