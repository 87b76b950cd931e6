"""One row of several clients at a time: a fault comes once, when all of them are ready for it."""

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs

from tests.compat.languages import Faults

T = TypeVar("T")


@attrs.define
class Together:
    """The Faults that rows are given which run side by side.

    What one client would meet alone, all of them meet: each waits until every other one has come
    to the same fault, or has ended.
    """

    _faults: Faults
    _working: int
    _waiting: int = 0
    _round: int = 0
    _failed: BaseException | None = None
    _changed: threading.Condition = attrs.Factory(threading.Condition)

    def move(self) -> None:
        self._once(self._faults.move)

    def kill(self) -> None:
        self._once(self._faults.kill)

    def roll(self) -> None:
        self._once(self._faults.roll)

    def calm(self) -> None:
        self._once(self._faults.calm)

    def leave(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify_all()

    def _once(self, act: Callable[[], None]) -> None:
        with self._changed:
            mine = self._round
            self._waiting += 1
            self._changed.notify_all()
            while self._round == mine:
                if self._waiting < self._working:
                    self._changed.wait()
                    continue
                self._round, self._waiting, self._failed = mine + 1, 0, None
                try:
                    act()
                except BaseException as error:  # noqa: BLE001  raised in all of them
                    self._failed = error
                self._changed.notify_all()
            if self._failed is not None:
                raise self._failed


def side_by_side(faults: Faults, rows: Mapping[str, Callable[[Faults], T]]) -> dict[str, T]:
    """What each returned; none of them may raise."""
    shared = Together(faults, len(rows))
    told: dict[str, T] = {}

    def run(name: str, row: Callable[[Faults], T]) -> None:
        try:
            told[name] = row(shared)
        finally:
            shared.leave()

    threads = [threading.Thread(target=run, args=one) for one in rows.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told
