"""When the cluster had faults, from the fault and heal records of a history."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import attrs

from history.record import Op, Record


class Stretch(NamedTuple):
    """A stretch of time, with or without faults, up to the beginning of the next one."""

    begin_ns: int | None
    """None for the first stretch: it has no beginning."""
    healed_ns: int | None
    """When the cluster was last healed, 0 if it never was; None while there is a fault."""


@attrs.frozen
class Trouble:
    """The times with faults: each from the first fault until the cluster was healed."""

    spans: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, marks: Iterable[Record]) -> "Trouble":
        spans: list[tuple[int, float]] = []
        begin: int | None = None
        for mark in sorted(marks, key=lambda one: one.began_ns):
            if mark.op == Op.FAULT and begin is None:
                begin = mark.began_ns
            elif mark.op == Op.HEAL and begin is not None:
                spans.append((begin, mark.began_ns))
                begin = None
        if begin is not None:
            spans.append((begin, float("inf")))
        return cls(tuple(spans))

    def at(self, time_ns: int) -> bool:
        return any(begin <= time_ns < end for begin, end in self.spans)

    def healed_ns(self, before_ns: int | None = None) -> int:
        """When the cluster was last healed (by `before_ns`, if given), or 0 if it never was."""
        ends = [int(end) for _, end in self.spans if end != float("inf")]
        return max((end for end in ends if before_ns is None or end <= before_ns), default=0)

    def stretches(self) -> Iterator[Stretch]:
        """All of time, in order: for callers that join a table instead of asking in a loop."""
        yield Stretch(None, 0)
        for begin, end in self.spans:
            if begin < end:
                yield Stretch(begin, None)
            if end != float("inf"):
                yield Stretch(int(end), int(end))
