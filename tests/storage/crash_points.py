"""Every way in which a power cut can end a few operations on a disk, one after the other."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from storage.disk.memory import MemoryDisk, PowerCut

OPERATIONS: Final = ("list", "open", "write", "fdatasync", "truncate", "rename", "remove", "fsync")


class _Script:
    """Answers that count up like a binary number from one run to the next. Where that would take
    too long and there are `samples`, that many random answers."""

    def __init__(self, samples: int | None) -> None:
        self.answers: list[bool] = []
        self._at = 0
        self._samples = samples
        self._dice = Random(1)

    def __call__(self) -> bool:
        if self._at == len(self.answers):
            self.answers.append(False)
        self._at += 1
        return self.answers[self._at - 1]

    def next(self) -> bool:
        """Move on to the next run; False after the last one."""
        assert self._at <= len(self.answers)
        if self._samples is not None and len(self.answers) > self._samples.bit_length():
            self._samples -= 1
            chance = self._dice.choice([0.1, 0.5, 0.9])
            self.answers = [self._dice.random() < chance for _ in self.answers]
            self._at = 0
            return self._samples > 0
        assert self._at == len(self.answers), "the run before asked less: it is no function"
        while self.answers and self.answers[-1]:
            self.answers.pop()
        if not self.answers:
            return False
        self.answers[-1] = True
        self._at = 0
        return True


def every_crash(
    make: Callable[[], MemoryDisk],
    work: Callable[[MemoryDisk], object],
    *,
    samples: int | None = None,
) -> Iterator[tuple[str, MemoryDisk]]:
    """The disks that a power cut before each operation of `work`, and after the last one, can
    leave: with each subset of unsynced sectors, and each prefix of the changes of names; or
    `samples` of them, if there are more."""
    for operation in OPERATIONS:
        for after in range(1000):
            script, stopped = _Script(samples), True
            while True:
                disk = make()
                disk.stop(operation, after=after)
                try:
                    work(disk)
                    stopped = False
                except PowerCut:
                    pass
                disk.crash(script)
                yield f"{operation} {after}, {''.join('01'[one] for one in script.answers)}", disk
                if not script.next():
                    break
            if not stopped:
                break
