"""Pictures of the report, for a README: readable when shown 800 pixels wide, on white.

Colours are from Okabe and Ito's palette, which colour-blind readers can tell apart; where lines
could still be confused, markers differ as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.report.logic import Row, percentile
from pipeline.report.schema import BALANCED, CONCENTRATED, FETCH, NO_LIMITS, PRODUCE
from pipeline.report.tables import number, size
from pipeline.report.transform import DUE, SENT

BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREEN: Final = "#009E73"
GREY: Final = "#666666"
COLOURS: Final = {CONCENTRATED: VERMILION, BALANCED: BLUE}
NAMES: Final = {CONCENTRATED: "all masters on one node", BALANCED: "masters evenly spread"}
MARKERS: Final = {CONCENTRATED: "s", BALANCED: "o"}
WIDTH_IN: Final = 8.0
DPI: Final = 160
"""1,280 pixels: sharp on dense screens, and text of 10 points is 14 pixels high at 800."""
STYLE: Final[Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
OTHERS_TOLD: Final = 0.1
"""If processes other than nodes and client took more of the machine, the picture says so."""
NAMED: Final = ("strategy", "producer", "rate", "grace_ms")
KINDS_MAX: Final = 12
"""More lines than this make no readable picture."""


def placements(summaries: Sequence[Row], cells: Sequence[Row], path: Path) -> None:
    """Messages/s by size in both layouts, and the ratio of each pair; of one run and client."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = sorted(summaries, key=lambda row: row["message_bytes"] or 0)
    places = range(len(rows))
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.9), layout="constrained")
        rates, ratio = figure.subplots(1, 2, width_ratios=(1.25, 1))
        for layout in (CONCENTRATED, BALANCED):
            _rates(rates, rows, cells, layout)
        _log(rates.yaxis, (1, 2, 5))
        rates.set_ylabel("acknowledged messages/s")
        rates.set_title("Total rate (bars: least to greatest load)", loc="left")
        rates.legend(loc="lower left", handlelength=1.5)
        for place, row in zip(places, rows, strict=True):
            ratios = row["ratios"]
            ratio.plot([place] * len(ratios), ratios, "o", color=GREEN, alpha=0.5, markersize=5)
            ratio.plot([place - 0.22, place + 0.22], [row["ratio"]] * 2, color="black", linewidth=2)
            ratio.annotate(
                f"{row['ratio']:.2f}",
                (place + 0.26, row["ratio"]),
                fontsize=9,
                verticalalignment="center",
            )
        ratio.axhline(1, color=GREY, linewidth=1, linestyle="--")
        ratio.set_ylim(bottom=0)
        ratio.set_ylabel("balanced / concentrated")
        ratio.set_title("Ratio of each pair (line: median)", loc="left")
        for axes in (rates, ratio):
            axes.set_xticks(list(places), [size(row["message_bytes"]) for row in rows])
            axes.set_xlim(-0.5, len(rows) - 0.35)
            axes.set_xlabel("message size")
            axes.grid(visible=False, axis="x")
        _footnote(figure, cells)
        _save(figure, path)


def _rates(axes: Any, rows: Sequence[Row], cells: Sequence[Row], layout: str) -> None:  # noqa: ANN401 (matplotlib's)
    found = {row["message_bytes"]: row for row in cells if row["layout"] == layout}
    middle = [row[layout] for row in rows]
    least = [min(row[layout], found[row["message_bytes"]]["qps_least"]) for row in rows]
    most = [max(row[layout], found[row["message_bytes"]]["qps_greatest"]) for row in rows]
    shift = -0.06 if layout == CONCENTRATED else 0.06
    axes.errorbar(
        [place + shift for place in range(len(rows))],
        middle,
        yerr=(
            [value - low for value, low in zip(middle, least, strict=True)],
            [high - value for value, high in zip(middle, most, strict=True)],
        ),
        color=COLOURS[layout],
        marker=MARKERS[layout],
        markersize=6,
        linewidth=1.8,
        elinewidth=1,
        capsize=3,
        label=NAMES[layout],
    )


def latency(cells: Sequence[Row], path: Path) -> None:
    """p50 and p99 by message size in both layouts; of one run and client."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = sorted(cells, key=lambda row: row["message_bytes"] or 0)
    sizes = list(dict.fromkeys(row["message_bytes"] for row in rows))
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.9), layout="constrained")
        axes = figure.subplots()
        for layout in (CONCENTRATED, BALANCED):
            of_layout = [row for row in rows if row["layout"] == layout]
            places = [sizes.index(row["message_bytes"]) for row in of_layout]
            for name, line in (("p50", "-"), ("p99", "--")):
                axes.plot(
                    places,
                    [row[f"{name}_ms"] for row in of_layout],
                    line,
                    color=COLOURS[layout],
                    marker=MARKERS[layout],
                    markerfacecolor=COLOURS[layout] if name == "p50" else "white",
                    linewidth=1.8,
                    label=f"{name}, {NAMES[layout]}",
                )
        axes.set_xticks(range(len(sizes)), [size(one) for one in sizes])
        axes.set_xlabel("message size")
        counted = {DUE: "when it was due", SENT: "when it was sent, closed loop"}
        axes.set_ylabel("latency, ms")
        axes.set_title(f"Latency of a request, from {counted[rows[0]['counted_from']]}", loc="left")
        axes.grid(visible=False, axis="x")
        axes.legend(loc="upper left", ncols=2, handlelength=2.2)
        _log(axes.yaxis, (1, 2, 5))
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.25)  # room for the legend
        _footnote(figure, rows)
        _save(figure, path)


def gaps(moves: Sequence[Row], path: Path) -> None:
    """A dot for each move: its longest silence, by strategy and load; producer and consumer."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = _differing(moves)
    handovers = {
        kind: [row["handover_ms"] for row in moves if _kind(row, names) == kind]
        for kind in {_kind(row, names) for row in moves}
    }
    kinds = sorted(handovers, key=lambda kind: (percentile(handovers[kind], 50), kind))
    kinds = kinds[:KINDS_MAX]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 1.5 + 0.42 * len(kinds)), layout="constrained")
        both = figure.subplots(1, 2, sharey=True, sharex=True)
        for axes, side in zip(both, (PRODUCE, FETCH), strict=True):
            for place, kind in enumerate(kinds):
                of_kind = [row for row in moves if _kind(row, names) == kind]
                _dots(axes, place, [row for row in of_kind if row["side"] == side])
            _log(axes.xaxis, (1,))
            axes.set_xlabel("longest silence, ms")
            axes.set_title("Acknowledgements" if side == PRODUCE else "Messages read", loc="left")
            axes.grid(visible=False, axis="y")
            for place in range(1, len(kinds)):
                axes.axhline(place - 0.5, color="#DDDDDD", linewidth=0.7)
        both[0].set_yticks(range(len(kinds)), kinds)
        both[0].set_ylim(len(kinds) - 0.5, -0.5)
        both[0].tick_params(axis="y", length=0)
        both[1].tick_params(axis="y", length=0)
        handles, labels = both[0].get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        median = unique.pop("median")
        figure.legend(
            [*unique.values(), median],
            [*unique, "median"],
            loc="outside upper right",
            ncols=4,
            handletextpad=0.3,
            markerscale=1.3,
        )
        words = _words(moves[0])
        same = [words[name] for name in NAMED if name not in names]
        counts = {len(handovers[kind]) // len(both) for kind in kinds}
        several = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{min(counts)}"
        _caption(figure, ", ".join([*same, f"{several} moves each"]))
        _save(figure, path)


def _log(axis: Any, steps: Sequence[int]) -> None:  # noqa: ANN401 (matplotlib's)
    """A logarithmic axis, with a number at these steps of every power of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes = axis.axes
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(lambda value, _: number(value))
    axis.set_minor_formatter(NullFormatter())


def _words(row: Row) -> dict[str, str]:
    return {
        "strategy": row["strategy"],
        "producer": f"{row['producer']} producer",
        "rate": f"{row['rate']:,g}/s",
        "grace_ms": f"grace {row['grace_ms'] / 1000:g} s",
    }


def _differing(moves: Sequence[Row]) -> list[str]:
    """The columns that each line's label must name: the others are the same in all lines."""
    return [name for name in NAMED if len({row[name] for row in moves}) > 1] or ["strategy"]


def _kind(row: Row, names: Sequence[str]) -> str:
    words = _words(row)
    return ", ".join(words[name] for name in names)


def _dots(axes: Any, place: int, rows: Sequence[Row]) -> None:  # noqa: ANN401 (matplotlib's)
    """Three rows of dots; the quiet intervals are what the load shows without any move."""
    shown = (("quiet", GREY, "."), ("handover", BLUE, "o"), ("redirect", VERMILION, "^"))
    for number_of, (name, colour, marker) in enumerate(shown):
        values = [row[f"{name}_ms"] for row in rows]
        if not values:
            continue
        y = place + (number_of - 1) * 0.24
        axes.plot(
            values,
            [y] * len(values),
            marker,
            color=colour,
            alpha=0.45,
            markersize=7 if marker == "." else 5,
            markeredgewidth=0,
            label={"quiet": "before the move", "redirect": "redirect after it"}.get(name, name),
        )
        axes.plot([percentile(values, 50)], [y], "|", color="black", markersize=9, label="median")


def _footnote(figure: Any, cells: Sequence[Row]) -> None:  # noqa: ANN401 (matplotlib's)
    row = cells[0]
    by_size = {one["message_bytes"] or 0: one["limits"] for one in cells}
    limits = ", ".join(dict.fromkeys(by_size[one] for one in sorted(by_size)))
    limits = (
        "nodes share one machine without limits: says nothing about separate machines"
        if limits == NO_LIMITS
        else f"each node limited to {limits}{' (by message size)' if ',' in limits else ''}"
    )
    others = max(one["others_share"] or 0.0 for one in cells)
    noisy = f"\nothers took up to {others:.0%} of the machine" if others > OTHERS_TOLD else ""
    _caption(figure, f"{row['benchmark']}: {row['nodes']} nodes, {row['client']}\n{limits}{noisy}")


def _caption(figure: Any, text: str) -> None:  # noqa: ANN401 (matplotlib's)
    figure.supxlabel(
        text, fontsize=9, color=GREY, x=0.01, horizontalalignment="left", multialignment="left"
    )


def _save(figure: Any, path: Path) -> None:  # noqa: ANN401 (matplotlib's)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
