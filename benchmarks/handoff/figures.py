"""From the clients' records to figures: pure functions of plain values.

A *gap* is the longest silence between two acknowledgements (or two messages read) that touches an
interval. Each move has three intervals. The quiet one before it shows what gap this load has
without any move. The handover lasts from when the old master freezes the group until a little after
the new one acts. The redirect follows, until its clients have found the new master.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

import attrs

MS: Final = 1_000_000
PERCENTILES: Final = (50, 99, 100)
BLIP_MS: Final = 50.0
"""A silence this long in the redirect interval is a client that was redirected and backed off."""


@attrs.frozen
class Interval:
    """Monotonic nanoseconds."""

    from_ns: int
    to_ns: int


@attrs.frozen(kw_only=True)
class Move:
    """One move: when, and how long each phase took by the nodes' own account."""

    source: int
    target: int
    quiet: Interval
    handover: Interval
    redirect: Interval
    phases_ms: Mapping[str, float]


def silences_ms(times_ns: Sequence[int], where: Interval) -> list[float]:
    """The silences that touch the interval; one that never ended lasts to the interval's end."""
    first = max(0, bisect_right(times_ns, where.from_ns) - 1)
    last = min(len(times_ns), bisect_left(times_ns, where.to_ns) + 1)
    touched = list(times_ns[first:last])
    if not touched or touched[-1] < where.to_ns:
        touched.append(where.to_ns)
    return [(later - earlier) / MS for earlier, later in pairwise(touched)] or [
        (where.to_ns - where.from_ns) / MS
    ]


def gap_ms(times_ns: Sequence[int], where: Interval) -> float:
    return max(silences_ms(times_ns, where))


def percentile(values: Sequence[float], percent: float) -> float:
    """The lowest value that at least this share of all values do not exceed."""
    assert values
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    names = {50: "p50", 99: "p99", 100: "max"}
    return {names[p]: round(percentile(values, p), 2) for p in PERCENTILES}


@attrs.frozen(kw_only=True)
class Watched:
    """What one side, producing or fetching, saw of all moves of a run."""

    quiet_ms: tuple[float, ...]
    handover_ms: tuple[float, ...]
    redirect_ms: tuple[float, ...]
    blips_max: int
    """The most times a client backed off after one move."""

    @property
    def above_ms(self) -> tuple[float, ...]:
        """By how much the handover's gap exceeds the usual one."""
        usual = median(self.quiet_ms)
        return tuple(max(0.0, one - usual) for one in self.handover_ms)


def watched(times_ns: Sequence[int], moves: Sequence[Move]) -> Watched:
    redirects = [silences_ms(times_ns, move.redirect) for move in moves]
    return Watched(
        quiet_ms=tuple(gap_ms(times_ns, move.quiet) for move in moves),
        handover_ms=tuple(gap_ms(times_ns, move.handover) for move in moves),
        redirect_ms=tuple(max(one) for one in redirects),
        blips_max=max(sum(silence > BLIP_MS for silence in one) for one in redirects),
    )


@attrs.frozen(kw_only=True)
class Run:
    """The measurement to make: one strategy under one load."""

    strategy: str
    rate: int
    """Messages a second."""
    moves: int
    grace_ms: int
    """How long the old master keeps forwarding (`balancer.forward_grace_ms`)."""
    idempotent: bool = True
    """The producer's `enable.idempotence`; confluent-kafka's default is without."""


@attrs.frozen(kw_only=True)
class Result:
    run: Run
    moves: tuple[Move, ...]
    produce: Watched
    fetch: Watched
    sent: int
    acknowledged: int
    errors: tuple[str, ...]
    lost: int
    duplicates: int
    refusals: int
    """Requests answered NOT_LEADER_OR_FOLLOWER, by the nodes' count."""
    forwarded: int
    phases_ms: Mapping[str, Sequence[float]]
    first_contact_ms: tuple[float, ...]
    """The longest silences of the earlier moves, in which each client first met each node."""

    def summary(self) -> dict[str, Any]:
        return {
            "strategy": self.run.strategy,
            "rate": self.run.rate,
            "producer": "idempotent" if self.run.idempotent else "plain",
            "grace_ms": self.run.grace_ms,
            "moves": len(self.moves),
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "client_errors": len(self.errors),
            "error_examples": list(self.errors[:5]),
            "lost": self.lost,
            "duplicates": self.duplicates,
            "not_leader_answers": self.refusals,
            "forwarded": self.forwarded,
            "first_contact_gap_ms": spread(self.first_contact_ms),
            **{
                side: {
                    "usual_gap_ms": spread(seen.quiet_ms),
                    "handover_gap_ms": spread(seen.handover_ms),
                    "handover_gap_above_usual_ms": spread(seen.above_ms),
                    "redirect_gap_ms": spread(seen.redirect_ms),
                    "blips_per_move_max": seen.blips_max,
                    "handover_gaps_ms": [round(one, 2) for one in seen.handover_ms],
                    "redirect_gaps_ms": [round(one, 2) for one in seen.redirect_ms],
                }
                for side, seen in (("produce", self.produce), ("fetch", self.fetch))
            },
            "phases_ms": {name: spread(values) for name, values in self.phases_ms.items()},
        }


# -- bars (issue 4) --------------------------------------------------------------------------------

ABOVE_P50_MS_MAX: Final = 5.0
ABOVE_P99_MS_MAX: Final = 25.0
REDIRECT_MS_MAX: Final = 130.0
BLIPS_MAX: Final = 1


def missed_bars(result: Result) -> list[str]:
    """The bars that the default strategy must reach and this result does not."""
    above, redirect = spread(result.produce.above_ms), spread(result.produce.redirect_ms)
    checks = (
        (len(result.errors), 0, "client errors"),
        (result.lost, 0, "messages lost"),
        (result.duplicates, 0, "duplicates"),
        (above["p50"], ABOVE_P50_MS_MAX, "ms handover gap above the usual one, p50"),
        (above["p99"], ABOVE_P99_MS_MAX, "ms handover gap above the usual one, p99"),
        (redirect["max"], REDIRECT_MS_MAX, "ms redirect blip"),
        (result.produce.blips_max, BLIPS_MAX, "blips after one move"),
    )
    return [
        f"{value:g} {what}, at most {limit:g}" for value, limit, what in checks if value > limit
    ]
