"""The committed files agree with their descriptions, and make sense to Grafana and to a reader.

Nothing here needs Prometheus or Grafana: those tests are in test_rules.py and test_scraping.py.
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards import __main__ as dashboards
from dashboards.alerts import ALERTS
from dashboards.panels import GRID_WIDTH, Kind, Panel, Unit
from dashboards.rules import RECORDINGS, RUNBOOKS
from tests.dashboards.filled import EVERYTHING
from tests.test_source import ROOT, exported_metrics

ALL_ALERTS = [alert for alerts in ALERTS.values() for alert in alerts]
ALERT_NAMES = {alert.name for alert in ALL_ALERTS}
FROM_PROMETHEUS = {"up", "ALERTS"}
METRIC = re.compile(r"\bevenkeel_[a-z0-9_]+")
RECORDED = re.compile(r"\b[a-z_]+:evenkeel_[a-z0-9_]+:[a-z0-9_]+")
GROUPED = re.compile(r"(?:histogram_quantile\([\d.]+, )?(?:sum|max|min) by \(([\w, ]*)\)")
SECTIONS = ["What it means", "How to see it", "What to do", "When to worry"]


def panels() -> Iterator[tuple[str, Panel]]:
    for board in dashboards.DASHBOARDS:
        for panel in board.panels():
            yield f"{board.title}: {panel.title}", panel


def exprs() -> Iterator[tuple[str, str]]:
    for name, panel in panels():
        yield from ((name, query.expr) for query in panel.queries)
    yield from ((rule.name, rule.expr) for rule in RECORDINGS)
    yield from ((alert.name, alert.expr) for alert in ALL_ALERTS)


def as_json() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((dashboards.HERE / "grafana").iterdir()):
        yield path.name, json.loads(path.read_text())


def test_what_is_committed_is_up_to_date() -> None:
    """If not: make dashboards."""
    there = {
        path.relative_to(dashboards.HERE)
        for folder in ("grafana", "prometheus")
        for path in (dashboards.HERE / folder).iterdir()
    }
    wanted = dict(dashboards.files())
    assert there == {*wanted, Path("prometheus/prometheus.yml")}
    for path, text in wanted.items():
        assert (dashboards.HERE / path).read_text() == text, f"{path}: run make dashboards"


# -- every series that is queried exists ----------------------------------------------------------


def exported(name: str, known: set[str]) -> bool:
    """Whether a node exports this series: a metric, a counter, or a part of a histogram."""
    ends = ("", "_total", "_bucket", "_sum", "_count")
    return any(name.removesuffix(end) in known for end in ends)


def test_every_metric_exists() -> None:
    recorded, known = {rule.name for rule in RECORDINGS}, exported_metrics()
    seen = set()
    for where, expr in exprs():
        assert set(RECORDED.findall(expr)) <= recorded, where
        for name in METRIC.findall(RECORDED.sub("", expr)):
            assert exported(name, known), f"{where}: {name}"
            seen.add(name)
    assert len(seen) > 80
    assert not exported("evenkeel_no_such_metric", known)


def test_every_recording_rule_is_used() -> None:
    used = {name for _, expr in exprs() for name in RECORDED.findall(expr)}
    assert {rule.name for rule in RECORDINGS} == used


def test_variables_are_those_of_the_dashboard() -> None:
    for board in dashboards.DASHBOARDS:
        known = {variable.name for variable in board.variables} | {"__rate_interval"}
        for panel in board.panels():
            for query in panel.queries:
                named = set(re.findall(r"\$(\w+)", query.expr))
                assert named <= known, f"{board.title}: {panel.title}"
                assert "cluster" in named, f"{board.title}: {panel.title} mixes clusters"
        assert known <= EVERYTHING.keys()


# -- for a reader ---------------------------------------------------------------------------------


def test_panels_say_what_they_show_and_what_to_do() -> None:
    for name, panel in panels():
        assert len(panel.description) > 40, name
        assert panel.description.endswith("."), name
        for alert in re.findall(r"\bEvenkeel\w+", panel.description):
            assert alert in ALERT_NAMES, name
        if panel.kind is Kind.LINES and len(panel.queries) > 1:
            assert all(query.legend for query in panel.queries), name
        legends = [query.legend for query in panel.queries]
        assert len(set(legends)) == len(legends), name


def test_units_fit_the_expressions() -> None:
    for name, panel in panels():
        for query in panel.queries:
            if panel.unit is Unit.BYTES_PER_S:
                assert "_bytes_total" in query.expr, name
                assert "rate(" in query.expr, name
            if query.expr.startswith(("evenkeel_", "max by")) and "_seconds{" in query.expr:
                assert panel.unit in (Unit.SECONDS, Unit.RATIO, Unit.DATE), name


def test_legends_have_the_labels_they_name() -> None:
    for name, panel in panels():
        for query in panel.queries:
            grouped = GROUPED.match(query.expr)
            if grouped and " or " not in query.expr:
                left = set(grouped[1].split(", "))
                assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= left, name


# -- for Grafana ----------------------------------------------------------------------------------


def test_dashboards_have_ids_and_each_other() -> None:
    found = dict(as_json())
    assert len(found) == 5
    assert len({board["uid"] for board in found.values()}) == 5
    for name, board in found.items():
        assert name == f"{board['uid']}.json"
        assert re.fullmatch(r"[a-z-]{1,40}", board["uid"]), "Grafana's limit"
        (link,) = board["links"]
        assert set(link["tags"]) <= set(board["tags"])
        assert link["includeVars"]
        assert link["keepTime"]
        assert [one["name"] for one in board["templating"]["list"]][:2] == ["datasource", "cluster"]


def test_panels_have_ids_and_do_not_overlap() -> None:
    for name, board in as_json():
        ids = [panel["id"] for panel in board["panels"]]
        assert ids == list(range(1, len(ids) + 1)), name
        taken: dict[tuple[int, int], str] = {}
        for panel in board["panels"]:
            place = panel["gridPos"]
            assert place["w"] > 0
            assert place["h"] > 0
            assert 0 <= place["x"] <= GRID_WIDTH - place["w"], f"{name}: {panel['title']}"
            columns = range(place["x"], place["x"] + place["w"])
            lines = range(place["y"], place["y"] + place["h"])
            for cell in itertools.product(columns, lines):
                assert cell not in taken, f"{name}: {panel['title']} lies on {taken[cell]}"
                taken[cell] = panel["title"]


def test_rows_are_filled() -> None:
    """No holes: panels of one line have one height, and their widths fill it."""
    for name, board in as_json():
        lines: dict[int, list[dict[str, int]]] = {}
        for panel in board["panels"]:
            lines.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"])
        for places in lines.values():
            assert sum(place["w"] for place in places) == GRID_WIDTH, f"{name}: {places}"
            assert len({place["h"] for place in places}) == 1, f"{name}: {places}"


def test_every_panel_asks_the_chosen_datasource() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for name, board in as_json():
        for panel in board["panels"]:
            if panel["type"] == "row":
                continue
            assert panel["datasource"] == chosen, name
            assert panel["targets"], name
            refs = [target["refId"] for target in panel["targets"]]
            assert len(set(refs)) == len(refs), name
            for target in panel["targets"]:
                assert target["datasource"] == chosen
                assert target["instant"] is not target["range"]
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert "value" in steps[0], "Grafana's first step is that below all values"
            assert steps[0]["value"] is None
            values = [step["value"] for step in steps[1:]]
            assert values == sorted(values), f"{name}: {panel['title']}"


# -- runbooks -------------------------------------------------------------------------------------


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {path.name for path in (ROOT / RUNBOOKS).iterdir()}
    assert pages == {f"{alert.name}.md" for alert in ALL_ALERTS} | {"README.md"}
    index = (ROOT / RUNBOOKS / "README.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (\w+) \| (\w*) \|", index, re.MULTILINE)
    told = [(one.name, one.severity, "" if one.lasts == "0s" else one.lasts) for one in ALL_ALERTS]
    assert rows == told


@pytest.mark.parametrize("alert", ALL_ALERTS, ids=lambda alert: alert.name)
def test_a_page_is_of_its_alert(alert: Any) -> None:
    """Its expression is the one that fires, and it says what to do."""
    text = (ROOT / alert.page).read_text()
    assert text.startswith(f"# {alert.name}\n")
    lasts = "at once" if alert.lasts == "0s" else f"after {alert.lasts}"
    assert f"\n{alert.severity}, {lasts}, on:\n\n```promql\n{alert.expr}\n```\n" in text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert re.search(
        r"^```sh\n(evenkeel|curl|timedatectl|top|iostat|dmesg|df) ", text, re.MULTILINE
    )


def test_alerts_name_their_pages() -> None:
    """A message that reaches somebody at night has a link."""
    text = (dashboards.HERE / "prometheus" / "alerts.yml").read_text()
    assert re.findall(r"^ +runbook_url: (.*)$", text, re.MULTILINE) == [
        alert.page for alert in ALL_ALERTS
    ]


def test_what_is_compared_is_the_whole_value() -> None:
    """A comparison binds more closely than `or`. Without parentheses only the last part of a value
    would be compared, and the rest would always fire."""
    for alert in ALL_ALERTS:
        inner, outside = alert.value, ""
        while inner != outside:  # from the innermost parentheses outwards
            outside, inner = inner, re.sub(r"\([^()]*\)", "", inner)
        assert not re.search(r"\b(?:or|and|unless)\b", outside), alert.name
        assert re.match(r"(?:==|>=|>|<) [\d.]+(?: |$)", alert.when), alert.name


@pytest.mark.parametrize("document", ["README.md", "docs/operations.md"])
def test_documents_count_them_right(document: str) -> None:
    text = (ROOT / document).read_text()
    assert set(re.findall(r"(\d+) alerts", text)) == {str(len(ALL_ALERTS))}


def test_alerts_are_told_apart() -> None:
    assert len(ALERT_NAMES) == len(ALL_ALERTS)
    for alert in ALL_ALERTS:
        assert alert.severity in {"critical", "warning", "info"}
        assert alert.description.endswith("."), alert.name
        assert not alert.summary.endswith("."), alert.name
        assert "{{ $labels." in alert.summary, f"{alert.name}: of what?"
