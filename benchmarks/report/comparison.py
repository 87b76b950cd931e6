"""Earlier results, and what has become better or worse since.

A figure is compared with the last one like it: the same benchmark at the same scale, of the same
system, on the same machine. If a later run measured only some benchmarks, those are compared with
it, and the others with the run before. A figure is called better or worse only if that cannot be
chance: if the values of both runs do not overlap at all.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.report.results import FORMAT, Figure, Outcome
from cli.bench import OURS

RESULT_BYTES_MAX: Final = 64 * 1024 * 1024
FILES_MAX: Final = 50
"""At most this many results are read, newest first."""
SINGLE_CHANGE_MIN: Final = 0.2
"""The spread of a figure that was measured once is unknown: less than this may be chance."""
SPREAD_KNOWN: Final = 2
"""From this many values on there is a spread."""


class ResultError(RuntimeError):
    """A result file cannot be read; the message says why."""


@attrs.frozen
class Kind:
    """What two runs must have in common to be compared by default."""

    scale: str
    bootstrap: str | None
    """Of given brokers, else None."""
    cpu: str
    cores: int

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> "Kind":
        """From the context that a result is written with."""
        machine = context["machine"]
        return cls(context["scale"], context["bootstrap_servers"], machine["cpu"], machine["cores"])


@attrs.frozen(kw_only=True)
class Earlier:
    """One benchmark of one system, in an earlier run."""

    benchmark: str
    system: str
    commit: str
    began: str
    overrides: tuple[str, ...]
    others_share: float
    figures: Mapping[str, Figure]

    @property
    def run(self) -> str:
        """A description of the run for people."""
        settings = "".join(f" --set {one}" for one in self.overrides)
        return f"{self.commit[:12]} of {self.began[:16].replace('T', ' ')}{settings}"


@attrs.frozen(kw_only=True)
class Change:
    """One figure, then and now."""

    benchmark: str
    before: Figure
    now: Figure

    @property
    def ratio(self) -> float:
        return self.now.value / self.before.value if self.before.value else 1.0

    @property
    def beyond_chance(self) -> bool:
        before, now = self.before.values, self.now.values
        if min(len(before), len(now)) < SPREAD_KNOWN and abs(self.ratio - 1) < SINGLE_CHANGE_MIN:
            return False
        return min(now) > max(before) or min(before) > max(now)

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `?` for what may be chance."""
        if not self.beyond_chance:
            return "?"
        more = self.now.value > self.before.value
        return "better" if more != self.now.less_is_better else "worse"


def read(path: Path) -> list[Earlier]:
    """The benchmarks of a result file.

    Raises:
        ResultError: if it is not one.
    """
    return _benchmarks(path, _content(path))


def last_of_each(folder: Path, kind: Kind, outcomes: Iterable[Outcome]) -> list[Earlier]:
    """For every benchmark that was measured, the previous result, if there is one.

    Files in the folder that are not results are skipped: other programs leave theirs there too.
    """
    wanted = {(one.system, one.name) for one in outcomes if one.figures}
    found: list[Earlier] = []
    for path in _newest_first(folder):
        if not wanted:
            break
        try:
            content = _content(path)
            if Kind.of(content) != kind:
                continue
            benchmarks = _benchmarks(path, content)
        except (ResultError, KeyError, TypeError):
            continue
        for one in benchmarks:
            if one.figures and (one.system, one.benchmark) in wanted:
                wanted.discard((one.system, one.benchmark))
                found.append(one)
    return found


def changes(outcomes: Sequence[Outcome], earlier: Sequence[Earlier]) -> list[Change]:
    """Every figure that was measured then and now."""
    before = {(one.system, one.benchmark): one.figures for one in earlier}
    return [
        Change(
            benchmark=outcome.name,
            before=before[outcome.system, outcome.name][figure.name],
            now=figure,
        )
        for outcome in outcomes
        for figure in outcome.figures
        if figure.name in before.get((outcome.system, outcome.name), {})
    ]


def _newest_first(folder: Path) -> list[Path]:
    """By the time of writing: users choose the names."""
    files = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.json") if path.is_file()]
    return [path for _, path in sorted(files, reverse=True)[:FILES_MAX]]


def _content(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            value: Any = json.loads(file.read(RESULT_BYTES_MAX))
        if value["format"] != FORMAT:
            raise ResultError(f"{path} has format {value['format']}, this program reads {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{path} cannot be read as a result ({error!r})") from error
    content: Mapping[str, Any] = value
    return content


def _benchmarks(path: Path, content: Mapping[str, Any]) -> list[Earlier]:
    try:
        return [
            Earlier(
                benchmark=str(one["name"]),
                system=str(one.get("system", OURS)),
                commit=str(content["commit"]),
                began=str(content.get("began", "")),
                overrides=tuple(map(str, content.get("overrides", ()))),
                others_share=float(one["others_share"]),
                figures={str(figure["name"]): _figure(figure) for figure in one["figures"]},
            )
            for one in content["benchmarks"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{path} cannot be read as a result ({error!r})") from error


def _figure(value: Mapping[str, Any]) -> Figure:
    return Figure(
        name=value["name"],
        values=value["values"],
        of_worst=value["of_worst"],
        less_is_better=value.get("less_is_better", False),
    )
