"""The rules as YAML: as little of the language as they need, so nothing has to be installed."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dashboards.rules import Alert, Recording

HEADER: Final = "# Written by `make dashboards` from dashboards/*.py: change it there.\n"


def alert_rules(groups: Mapping[str, Sequence[Alert]]) -> str:
    return (
        HEADER + "groups:\n" + "".join(_group(name, map(_alert, groups[name])) for name in groups)
    )


def recording_rules(name: str, rules: Sequence[Recording]) -> str:
    return HEADER + "groups:\n" + _group(name, map(_recording, rules))


def _group(name: str, rules: Iterable[Iterator[str]]) -> str:
    lines = [f"  - name: {name}", "    rules:"]
    for rule in rules:
        first, *others = rule
        lines += [f"      - {first}", *(f"        {line}" for line in others)]
    return "\n".join(lines) + "\n"


def _recording(rule: Recording) -> Iterator[str]:
    yield f"record: {rule.name}"
    yield f"expr: {_quoted(rule.expr)}"


def _alert(alert: Alert) -> Iterator[str]:
    yield f"alert: {alert.name}"
    yield f"expr: {_quoted(alert.expr)}"
    yield f"for: {alert.lasts}"
    yield "labels:"
    yield f"  severity: {alert.severity}"
    yield "annotations:"
    yield f"  summary: {_quoted(alert.summary)}"
    yield f"  description: {_quoted(alert.description)}"
    yield f"  runbook_url: {alert.page}"


def _quoted(text: str) -> str:
    """Single quotes: inside them only the quote itself has a meaning."""
    assert text.isprintable(), json.dumps(text)
    return "'" + text.replace("'", "''") + "'"
