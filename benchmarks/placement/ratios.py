"""The results of `python -m benchmarks.placement.placements`, and what may be concluded from them.

A ratio counts only if the nodes' links were the limit. If in either layout no link was full, and
this machine's CPU was, or one process used a whole core, the pair is marked and left out of the
median. So is a pair whose readers or nodes fell behind with balanced masters: then less was sent
than the case says. If that happens only with concentrated masters, their node was spared work and
acknowledged more because of it: the pair says that the ratio is *at least* this high.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

import attrs

from benchmarks.load import usage
from benchmarks.load.jobs import Measured
from benchmarks.load.samples import BALANCED, CONCENTRATED
from benchmarks.machines.limits import busy, cpu_bound, link_shares, rate_text
from benchmarks.report.results import number

LAYOUTS: Final = (CONCENTRATED, BALANCED)
FULL_LINK: Final = 0.9
"""Of its rate. Interfaces count headers once for packets that are cut into frames later."""
READ_SHARE_MIN: Final = 0.9
"""Readers, and nodes, have kept up if they got this share of what was produced in the window."""
COLUMNS: Final = (5, 7, 8, 11, 14, 10, 7, 13, 6, 6, 13)
"""Widths of the table's columns."""
HEAD: Final = (
    *("nodes", "groups", "readers", "message", "concentrated", "balanced"),
    *("ratio", "from - to", "ideal", "pairs", "CPU"),
)


class Case(NamedTuple):
    """One combination that is measured in both layouts."""

    nodes: int
    groups: int
    readers: int
    """Consumers that read everything meanwhile."""
    message_bytes: int

    def __str__(self) -> str:
        read = f", {self.readers} reading" if self.readers else ""
        return f"{self.nodes} nodes, {self.groups} groups, {self.message_bytes:,} B{read}"

    def ideal(self, *, both_ways: bool = True) -> float:
        """The ratio, if links were the only limit, and payload the only traffic.

        One copy of each message goes into every node, whichever is its master, so the balanced
        layout cannot be faster than one link receives. The master sends a copy to each other node
        and reader, so the concentrated layout is slower by that factor, and the balanced one shares
        that work among the nodes. If links limit only what is sent, that work is all that counts.
        """
        copies = self.nodes - 1 + self.readers
        return copies / max(1.0, copies / self.nodes) if both_ways else float(self.nodes)


@attrs.frozen(kw_only=True)
class Rate:
    """One load: what was acknowledged of messages of one size, in one layout."""

    case: Case
    pair: int
    layout: str
    bits_per_s: int
    """Of each node's link; 0: the nodes were not limited."""
    measured: Measured
    both_ways: bool = True
    """False: only what nodes send is limited."""
    read: tuple[Measured, ...] = ()
    """What each reader got in a window of the same length."""

    @property
    def read_share(self) -> float:
        """The share of the acknowledged messages that the slowest reader got."""
        least = min((one.per_s for one in self.read), default=self.measured.per_s)
        return least / self.measured.per_s if self.measured.count else 1.0

    @property
    def copied_share(self) -> float:
        """The share of the acknowledged messages that the slowest node got, headers included.

        A majority is enough for an acknowledgement. A node that is sent less meanwhile gets the
        rest later, after the measurement.
        """
        received = self.measured.usage.received_bytes
        if not self.bits_per_s or not received or not self.measured.bytes:
            return 1.0
        rate = min(received) / self.measured.usage.seconds
        return rate / (self.measured.bytes / self.measured.seconds)

    @property
    def behind(self) -> str:
        """Who got less than what was acknowledged; empty if all kept up."""
        if self.read_share < READ_SHARE_MIN:
            return "readers fell behind"
        if self.copied_share < READ_SHARE_MIN:
            return "a node fell behind: its copies were not all sent within the window"
        return ""

    @property
    def usages(self) -> list[usage.Usage]:
        """Those of all clients; each covers the nodes and itself."""
        return [one.usage for one in (self.measured, *self.read)]

    @property
    def limited_by_cpu(self) -> bool:
        """A full link is the limit however busy the rest is. Without limits this is unknown."""
        sent, received = self.links
        limited = (*sent, *received) if self.both_ways else sent
        full = max(limited, default=0.0) >= FULL_LINK
        return bool(self.bits_per_s) and not full and cpu_bound(self.usages)

    @property
    def links(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return link_shares(self.measured.usage, self.bits_per_s)


@attrs.frozen(kw_only=True)
class Pair:
    """Both layouts of a case, measured one after the other."""

    concentrated: Rate
    balanced: Rate

    @property
    def ratio(self) -> float:
        return self.balanced.measured.per_s / self.concentrated.measured.per_s

    @property
    def flaw(self) -> str:
        """Why this ratio does not count; empty if it does."""
        if any(one.limited_by_cpu for one in (self.concentrated, self.balanced)):
            return "CPU was the limit, not the network (take a lower --limit network=RATE)"
        return self.balanced.behind

    @property
    def at_least(self) -> str:
        """Why the ratio would be higher if all had kept up; empty if they have."""
        return self.concentrated.behind


def pairs(rates: Iterable[Rate]) -> dict[Case, list[Pair]]:
    """The complete pairs of each case, in the order of their numbers."""
    found = {(one.case, one.pair, one.layout): one for one in rates}
    by_case: dict[Case, list[Pair]] = {}
    for case, pair, layout in sorted(found):
        if layout != BALANCED:
            continue
        concentrated = found.get((case, pair, CONCENTRATED))
        if concentrated is not None and concentrated.measured.count:
            complete = Pair(concentrated=concentrated, balanced=found[case, pair, layout])
            by_case.setdefault(case, []).append(complete)
    return by_case


def ratios(rates: Iterable[Rate]) -> dict[Case, list[float]]:
    """Balanced / concentrated of the pairs that count."""
    return {
        case: [one.ratio for one in found if not one.flaw] for case, found in pairs(rates).items()
    }


def table(rates: Sequence[Rate]) -> str:
    """Medians of the pairs that count, the spread of their ratios, and the CPU shares."""
    lines = [_row(*HEAD), "-" * sum(COLUMNS)]
    for case, found in pairs(rates).items():
        counting = [one for one in found if not one.flaw]
        shown = counting or found
        of_pairs = [one.ratio for one in shown]
        lines.append(
            _row(
                str(case.nodes),
                str(case.groups),
                str(case.readers),
                f"{case.message_bytes:,} B",
                f"{number(median(one.concentrated.measured.per_s for one in shown))}/s",
                f"{number(median(one.balanced.measured.per_s for one in shown))}/s",
                _ratio_text(counting),
                f"{min(of_pairs):.2f} - {max(of_pairs):.2f}",
                f"{case.ideal(both_ways=found[0].balanced.both_ways):.1f}",
                str(len(counting)),
                " / ".join(f"{_cpu(shown, layout):.0%}" for layout in LAYOUTS),
            )
        )
        flaws = Counter(one.flaw for one in found if one.flaw)
        for flaw, count in sorted(flaws.items()):
            lines.append(f"{'':10}{count} of {len(found)} pairs do not count: {flaw}")
        spared = Counter(one.at_least for one in counting if one.at_least)
        for why, count in sorted(spared.items()):
            lines.append(
                f"{'':10}{count} of {len(found)} pairs are lower bounds: concentrated, {why}"
            )
    return "\n".join(lines)


def _ratio_text(counting: Sequence[Pair]) -> str:
    """The median of the pairs that count; if any is a lower bound, so is the median."""
    if not counting:
        return "-"
    bound = ">" if any(one.at_least for one in counting) else ""
    return f"{bound}{median(one.ratio for one in counting):.2f}"


def _row(*cells: str) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, COLUMNS, strict=True))


def _cpu(found: Sequence[Pair], layout: str) -> float:
    """The machine's share in that layout, of the pair with the largest."""
    return max(busy(_of(one, layout).measured.usage)[0] for one in found)


def _of(pair: Pair, layout: str) -> Rate:
    return pair.concentrated if layout == CONCENTRATED else pair.balanced


def links_table(rates: Sequence[Rate]) -> str:
    """The part of its link that each node used, in each layout; empty if there were no links."""
    lines = []
    for case, found in pairs(rates).items():
        for layout in LAYOUTS:
            of_layout = [_of(one, layout) for one in found]
            links = [one.links for one in of_layout if one.links[0]]
            if links:
                sent, received = (
                    " ".join(f"{median(of_node):>5.0%}" for of_node in zip(*of_all, strict=True))
                    for of_all in zip(*links, strict=True)
                )
                rate = rate_text(of_layout[0].bits_per_s)
                lines.append(f"{case!s:<44}{rate:>8}  {layout:<12}  {sent}  |  {received}")
    head = f"{'':44}{'link':>8}  {'masters':<12}  sent, each node  |  received, each node"
    return "\n".join(["part of its link that each node used:", head, *lines]) if lines else ""


def as_json(rates: Iterable[Rate]) -> list[dict[str, Any]]:
    """Every load with its cost, for independent evaluation."""
    return [
        {
            **one.case._asdict(),
            "pair": one.pair,
            "layout": one.layout,
            "bits_per_s": one.bits_per_s,
            "both_ways": one.both_ways,
            "per_s": one.measured.per_s,
            "read_per_s": [reader.per_s for reader in one.read],
            "latency_ms": _latency_ms(one.measured),
            "machine_busy": busy(one.measured.usage)[0],
            "busiest_process": busy(one.measured.usage)[1],
            "usage": usage.to_json(one.measured.usage),
        }
        for one in rates
    ]


def _latency_ms(measured: Measured) -> Mapping[str, float]:
    latency = measured.latency_ns
    return {f"p{q:g}": latency.percentile(q) / 1e6 for q in (50, 99)} if latency.count else {}
