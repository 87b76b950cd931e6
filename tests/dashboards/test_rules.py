"""Prometheus's own tools judge the rules: every alert fires when it should, and only then."""

import json
import re
from collections import Counter
from pathlib import Path

import attrs
import pytest

from cluster import prometheus
from cluster.spec import plan, save
from dashboards.__main__ import DASHBOARDS
from dashboards.alerts import ALERTS
from dashboards.rules import RECORDINGS, Alert
from dashboards.yaml import alert_rules, recording_rules
from tests.dashboards.filled import filled
from tests.dashboards.promtool import needs_prometheus, promtool
from tests.dashboards.stories import STEP_S, STORIES, Story

BY_NAME = {alert.name: alert for alerts in ALERTS.values() for alert in alerts}


def test_every_alert_has_a_story() -> None:
    assert Counter(story.alert for story in STORIES) == Counter(BY_NAME.keys())
    assert all(story.quiet for story in STORIES)


def judged(story: Story, alert: Alert) -> dict[str, object]:
    """The story as promtool reads it: the expected ALERTS at each of its times."""
    expr = f'ALERTS{{alertname="{alert.name}",alertstate="firing"}}'
    labels = {
        "alertname": alert.name,
        "alertstate": "firing",
        "severity": alert.severity,
        **story.labels,
    }
    written = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    sample = {"labels": f"ALERTS{{{written}}}", "value": 1}
    looks = [{"expr": expr, "eval_time": story.fires, "exp_samples": [sample]}]
    looks += [{"expr": expr, "eval_time": at, "exp_samples": []} for at in story.quiet]
    return {
        "name": alert.name,
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": series, "values": values} for series, values in story.series.items()
        ],
        "promql_expr_test": looks,
    }


def write_story(folder: Path, story: Story) -> Path:
    """A file for promtool, with only the one alert and the recording rules it needs: all rules at
    all times of all stories take a minute. (JSON is YAML.)"""
    alert = BY_NAME[story.alert]
    needed = [rule for rule in RECORDINGS if rule.name in alert.expr]
    folder.mkdir(exist_ok=True)
    rules = folder / f"{alert.name}.rules.yml"
    text = alert_rules({alert.name: [alert]})
    rules.write_text(text)
    files = [str(rules)]
    if needed:
        files.insert(0, str(folder / f"{alert.name}.recording.yml"))
        Path(files[0]).write_text(recording_rules("a-recording", needed))
    tests = [judged(story, alert)]
    value = {"rule_files": files, "evaluation_interval": f"{STEP_S}s", "tests": tests}
    path = folder / f"{alert.name}.test.yml"
    path.write_text(json.dumps(value))
    return path


@needs_prometheus
def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    promtool("test", "rules", *(write_story(tmp_path, story) for story in STORIES))


@needs_prometheus
def test_a_story_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    right = next(story for story in STORIES if story.alert == "EvenkeelNodeDown")
    for wrong in (
        attrs.evolve(right, fires="4m"),
        attrs.evolve(right, quiet=(right.fires,)),
        attrs.evolve(right, labels={**right.labels, "node": "2"}),
    ):
        with pytest.raises(AssertionError, match="FAILED"):
            promtool("test", "rules", write_story(tmp_path, wrong))


@needs_prometheus
def test_promtool_accepts_the_configuration_as_it_is_run(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path / "data", node_count=3, fixed_ports=False)
    save(spec, [], {})
    told = promtool("check", "config", prometheus.prepare(spec))
    assert re.search(r"SUCCESS: .*prometheus.yml is valid", told), told
    assert told.count(" rules found") == 2


@needs_prometheus
def test_promtool_can_read_every_panel(tmp_path: Path) -> None:
    exprs = [
        query.expr for board in DASHBOARDS for panel in board.panels() for query in panel.queries
    ]
    assert len(exprs) > 80
    rules = [
        {"record": f"panel:{number}", "expr": filled(expr)} for number, expr in enumerate(exprs)
    ]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(exprs)} rules found" in promtool("check", "rules", path)
