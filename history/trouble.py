"""When somebody hurt the cluster, from the marks that a history has of it."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import attrs

from history.record import Op, Record


class Stretch(NamedTuple):
    """A stretch of time of one kind, up to where the next one begins."""

    begin_ns: int | None
    """None: since ever."""
    healed_ns: int | None
    """When the cluster was last healed, 0 where it never was; None: somebody is hurting it."""


@attrs.frozen
class Trouble:
    """When somebody hurt the cluster: from each first fault until it was healed."""

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
        """When it was last healed (before that time), or 0 where nothing ever was."""
        ends = [int(end) for _, end in self.spans if end != float("inf")]
        return max((end for end in ends if before_ns is None or end <= before_ns), default=0)

    def stretches(self) -> Iterator[Stretch]:
        """All of time, in order: whoever has a table instead of a loop finds both answers here."""
        yield Stretch(None, 0)
        for begin, end in self.spans:
            if begin < end:
                yield Stretch(begin, None)
            if end != float("inf"):
                yield Stretch(int(end), int(end))
