"""Filters on topic, partition, offset and timestamp, as narrower ranges to read.

Ranges are only cut where no row in the part cut off can pass the filters, and Spark applies the
filters again to each row. So a filter that is not understood here costs time and nothing else.

For timestamps only a lower bound helps. A log knows the first offset that is not older, and
everything before it is certainly older; times need not ascend, so records after a newer one may be
older again.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_evenkeel.client.cluster import Place
from pyspark_evenkeel.offsets import Range

COLUMNS: Final = ("topic", "partition", "offset", "timestamp")


@attrs.define
class Allowed:
    """The values of a column that can pass; None: no bound (`Any`: of the column's type)."""

    low: Any = None
    high: Any = None
    members: frozenset[Any] | None = None

    def demand(self, one: Filter) -> None:
        """Narrow it by a filter on this column; bounds are treated as inclusive."""
        match one:
            case EqualTo(value=value) if value is not None:
                self._within(value, value, {value})
            case In(value=values) if values and None not in values:
                self._within(min(values), max(values), set(values))
            case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
                self._within(value, None, None)
            case LessThan(value=value) | LessThanOrEqual(value=value):
                self._within(None, value, None)
            case _:
                pass

    def _within(self, low: Any, high: Any, members: set[Any] | None) -> None:  # noqa: ANN401
        if low is not None:
            self.low = low if self.low is None else max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)
        if members is not None:
            self.members = frozenset(members if self.members is None else self.members & members)

    def has(self, value: str | int) -> bool:
        return (
            (self.low is None or self.low <= value)
            and (self.high is None or value <= self.high)
            and (self.members is None or value in self.members)
        )


@attrs.define
class Wanted:
    """The conditions that rows must meet to pass all filters."""

    columns: dict[str, Allowed] = attrs.Factory(lambda: {name: Allowed() for name in COLUMNS})

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> "Wanted":
        wanted = cls()
        for one in filters:
            attribute: tuple[str, ...] = getattr(one, "attribute", ())
            if len(attribute) == 1 and attribute[0] in COLUMNS:
                wanted.columns[attribute[0]].demand(one)
        return wanted

    @property
    def since_ms(self) -> int | None:
        """Older rows do not pass."""
        low = self.columns["timestamp"].low
        if not isinstance(low, datetime) or low.tzinfo is None:
            return None
        return max(0, int(low.timestamp() * 1000) - 1)

    def ranges(self, ranges: Sequence[Range]) -> list[Range]:
        """The parts of these ranges that are left."""
        topic, partition = self.columns["topic"], self.columns["partition"]
        offset = self.columns["offset"]
        kept = []
        for place, start, end in ranges:
            if topic.has(place.topic) and partition.has(place.partition):
                low = start if offset.low is None else max(start, offset.low)
                high = end if offset.high is None else min(end, offset.high + 1)
                kept.append(Range(place, low, high))
        return [one for one in kept if one.size > 0]

    @staticmethod
    def recent(ranges: Sequence[Range], first: Mapping[Place, int]) -> list[Range]:
        """Without the records before the first one that is new enough; a negative offset: there is
        none."""
        kept = [
            Range(place, max(start, first[place]), end)
            for place, start, end in ranges
            if first[place] >= 0
        ]
        return [one for one in kept if one.size > 0]
