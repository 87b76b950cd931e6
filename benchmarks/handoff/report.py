"""The figures as Markdown, put between two marks of docs/handoff.md, and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

BEGIN: Final = "<!-- figures: python -m benchmarks.handoff writes what is between these marks -->"
END: Final = "<!-- end of figures -->"
CLIENTS_BEGIN: Final = "<!-- clients: python -m benchmarks.handoff writes what is between these -->"
CLIENTS_END: Final = "<!-- end of clients -->"
SIDES: Final = ("produce", "fetch")
WHICH: Final = ("strategy", "producer", "messages/s", "grace")


def markdown(context: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """`results` are summaries as in the JSON file."""
    return "\n\n".join(
        [
            _where(context),
            *(_gaps(results, side) for side in SIDES),
            _clients(results),
            _phases(results),
        ]
    )


def _where(context: Mapping[str, Any]) -> str:
    return (
        f"{_when(context)}, "
        f"confluent-kafka {context['packages']['confluent-kafka']} with default settings but "
        f"`linger.ms=0`. {context['took_s'] / 60:.0f} minutes."
    )


def _when(context: Mapping[str, Any]) -> str:
    machine = context["machine"]
    dirty = " with local changes" if context["uncommitted_changes"] else ""
    return (
        f"Measured {context['began'][:10]} at commit `{context['commit'][:10]}`{dirty}: "
        f"{machine['cpu']}, {machine['cores']} cores for three nodes and the clients, load average "
        f"{machine['load_average'][0]:.1f} at the start, niceness {context['niceness']}"
    )


def by_client(context: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """`rows` are summaries of benchmarks.handoff.by_client.Seen."""
    head = [
        *("client", "producer", "moves", "sent", "lost", "twice", "out of order"),
        *("errors", "hung"),
        *("silence, ms", "unread", "read twice", "silence, ms", "NOT_LEADER answers", "forwarded"),
    ]
    table = [
        [
            one["client"],
            "idempotent" if one["idempotent"] else "plain",
            one["moves"],
            f"{one['sent']:,}",
            one["lost"],
            one["twice"],
            one["disordered"],
            one["errors"],
            "yes" if one["hung"] else "no",
            _two(one["silence_ms"]),
            one["unread"],
            one["read_twice"],
            _two(one["read_silence_ms"]),
            one["refusals"],
            f"{one['forwarded']:,}",
        ]
        for one in rows
    ]
    rates = " and ".join(sorted({f"{one['rate']:,}" for one in rows}))
    return f"{_when(context)}, {rates} messages/s.\n\n{_table(head, table)}"


def _two(figures: Mapping[str, float]) -> str:
    return f"{figures['p99']:.0f} / {figures['max']:.0f}"


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join(map(_row, [head, ["---"] * len(head), *rows]))


def _three(figures: Mapping[str, float]) -> str:
    return " / ".join(f"{figures[name]:.1f}" for name in ("p50", "p99", "max"))


def _which(one: Mapping[str, Any]) -> list[object]:
    return [f"`{one['strategy']}`", one["producer"], one["rate"], one["grace_ms"]]


def _gaps(results: Sequence[Mapping[str, Any]], side: str) -> str:
    head = [
        *WHICH,
        "moves",
        "usual gap",
        "handover gap",
        "above usual",
        "redirect",
    ]
    rows = [
        [
            *_which(one),
            one["moves"],
            _three(one[side]["usual_gap_ms"]),
            _three(one[side]["handover_gap_ms"]),
            _three(one[side]["handover_gap_above_usual_ms"]),
            _three(one[side]["redirect_gap_ms"]),
        ]
        for one in results
    ]
    return f"**{side.capitalize()}**, ms, p50 / p99 / max:\n\n{_table(head, rows)}"


def _clients(results: Sequence[Mapping[str, Any]]) -> str:
    head = [
        *WHICH,
        "sent",
        "client errors",
        "lost",
        "duplicates",
        "NOT_LEADER answers",
        "forwarded",
        "blips per move, at most",
        "first contact, max ms",
    ]
    rows = [
        [
            *_which(one),
            f"{one['sent']:,}",
            one["client_errors"],
            one["lost"],
            one["duplicates"],
            one["not_leader_answers"],
            f"{one['forwarded']:,}",
            max(one[side]["blips_per_move_max"] for side in SIDES),
            f"{one['first_contact_gap_ms']['max']:.0f}",
        ]
        for one in results
    ]
    return f"What the clients saw:\n\n{_table(head, rows)}"


def _phases(results: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for one in results for name in one["phases_ms"]))
    rows = [
        [
            *_which(one),
            *(_three(one["phases_ms"][name]) if name in one["phases_ms"] else "" for name in names),
        ]
        for one in results
    ]
    return "Phases by the nodes' own clocks, ms, p50 / p99 / max:\n\n" + _table(
        [*WHICH, *names], rows
    )


def write_into(page: Path, text: str, *, begin: str = BEGIN, end: str = END) -> None:
    """Replace what is between two marks of a page.

    Raises:
        ValueError: if the page does not have them.
    """
    before, found_begin, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"{page} has no place for the figures: {begin}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def plot(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The share of moves whose gap was at most this long, a line for each strategy and load.

    Raises:
        ImportError: without matplotlib, which only the `bench` extra installs.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    strategies = list(dict.fromkeys(one["strategy"] for one in results))
    rates = sorted({one["rate"] for one in results})
    for axis, side in zip(axes, SIDES, strict=True):
        for one in (one for one in results if one["producer"] == "idempotent"):
            if one["grace_ms"] != results[0]["grace_ms"]:
                continue  # only noticed after the handover
            gaps = sorted(one[side]["handover_gaps_ms"])
            shares = [(index + 1) / len(gaps) for index in range(len(gaps))]
            axis.step(
                gaps,
                shares,
                where="post",
                color=f"C{strategies.index(one['strategy'])}",
                linestyle="--" if one["rate"] == rates[0] else "-",
                label=f"{one['strategy']}, {one['rate']}/s",
            )
        axis.set_xscale("log")
        axis.set_xlabel(f"{side} gap at the handover, ms")
        axis.grid(visible=True, which="major", alpha=0.4)
    axes[0].set_ylabel("share of moves")
    axes[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
