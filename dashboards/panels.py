"""The parts of a Grafana dashboard, and its JSON: panels that flow from left to right in rows.

It has only those parts of Grafana's model (schema 39, Grafana 10 and newer) that the dashboards
here need, and the same description always gives the same bytes.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

GRID_WIDTH: Final = 24
SCHEMA_VERSION: Final = 39
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TAG: Final = "evenkeel"

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"
BLUE: Final = "blue"
GREY: Final = "text"


class Kind(StrEnum):
    STAT = "stat"
    LINES = "timeseries"
    TABLE = "table"
    STATES = "state-timeline"
    HEATMAP = "heatmap"


class Unit(StrEnum):
    """Names that Grafana gives its units."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_S = "Bps"
    PER_S = "cps"
    RECORDS_PER_S = "rowsps"
    REQUESTS_PER_S = "reqps"
    RATIO = "percentunit"
    DATE = "dateTimeFromNow"


@attrs.frozen
class Query:
    expr: str
    legend: str = ""


@attrs.frozen
class Step:
    """From this value on, this colour."""

    value: float
    colour: str


@attrs.frozen(kw_only=True)
class Panel:
    """`description` says what is shown, and what to do about it.

    `steps`: colours by value; `base` applies below the first one. `words`: the text for a value.
    """

    title: str
    description: str
    queries: Sequence[Query]
    kind: Kind = Kind.LINES
    unit: Unit = Unit.COUNT
    width: int = 8
    height: int = 8
    stacked: bool = False
    base: str = GREEN
    steps: Sequence[Step] = ()
    words: Sequence[tuple[float, str, str]] = ()
    """(value, word, colour)"""
    maximum: float | None = None

    @property
    def zero_if_empty(self) -> bool:
        """Whether no series means 0: true of counts, rates and sizes, not of times and states."""
        return not self.words and self.unit not in (Unit.SECONDS, Unit.DATE)


@attrs.frozen
class Row:
    title: str
    panels: Sequence[Panel]


@attrs.frozen
class Variable:
    name: str
    label: str
    of_metric: str
    """The metric whose label of that name gives the choices, with its selector."""
    many: bool = True


@attrs.frozen(kw_only=True)
class Dashboard:
    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[Variable]

    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels


CLUSTER: Final = Variable("cluster", "Cluster", "evenkeel_node_info", many=False)
NODE: Final = Variable("node", "Node", 'evenkeel_node_info{cluster="$cluster"}')
GROUP: Final = Variable("group", "Paxos group", 'evenkeel_group_acting{cluster="$cluster"}')
CONSUMER_GROUP: Final = Variable(
    "consumer_group", "Consumer group", 'evenkeel_consumer_lag{cluster="$cluster"}'
)


def to_json(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": f"Evenkeel / {dashboard.title}",
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [_LINK],
        "annotations": {"list": [_ALERTS]},
        "templating": {"list": [_SOURCES, *map(_variable, dashboard.variables)]},
        "panels": list(_placed(dashboard.rows)),
    }


_LINK: Final = {
    "title": "Evenkeel",
    "type": "dashboards",
    "tags": [TAG],
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
}
"""To the other dashboards, with the same cluster, node and time."""

_ALERTS: Final = {
    "name": "Alerts",
    "datasource": DATASOURCE,
    "enable": True,
    "expr": 'ALERTS{cluster="$cluster",alertstate="firing"}',
    "titleFormat": "{{alertname}}",
    "textFormat": "node {{node}} group {{group}}",
    "iconColor": RED,
    "step": "10s",
}

_SOURCES: Final = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
}


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.of_metric}, {variable.name})"
    shown: dict[str, Any] = {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 3,
        "multi": variable.many,
        "includeAll": variable.many,
    }
    if variable.many:
        shown |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return shown


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number = y = 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": GRID_WIDTH, "x": 0, "y": y}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        y += 1
        x = lowest = 0
        for panel in row.panels:
            number += 1
            if x + panel.width > GRID_WIDTH:
                x, y = 0, y + lowest
                lowest = 0
            yield _panel(number, panel, x, y)
            x += panel.width
            lowest = max(lowest, panel.height)
        y += lowest


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "targets": [
            _target(panel, query, chr(ord("A") + index))
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }


def _target(panel: Panel, query: Query, name: str) -> dict[str, Any]:
    instant = panel.kind in (Kind.STAT, Kind.TABLE)
    form = {Kind.TABLE: "table", Kind.HEATMAP: "heatmap"}.get(panel.kind, "time_series")
    return {
        "refId": name,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": instant,
        "range": not instant,
        "format": form,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"value": None, "color": panel.base}]
    steps += [{"value": step.value, "color": step.colour} for step in panel.steps]
    found: dict[str, Any] = {
        "unit": panel.unit.value,
        "min": 0 if panel.unit is not Unit.DATE and not panel.words else None,
        "max": panel.maximum,
        "noValue": "0" if panel.zero_if_empty else None,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "palette-classic" if panel.kind is Kind.LINES else "thresholds"},
        "mappings": [
            {
                "type": "value",
                "options": {
                    f"{value:g}": {"text": word, "color": colour, "index": index}
                    for index, (value, word, colour) in enumerate(panel.words)
                },
            }
        ]
        if panel.words
        else [],
    }
    if panel.kind is Kind.LINES:
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
        }
    return {key: value for key, value in found.items() if value is not None}


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case Kind.STAT:
            return {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value",
                "graphMode": "none",
                "textMode": "auto",
            }
        case Kind.LINES:
            legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]}
            return {
                "legend": {**legend, "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Kind.STATES:
            return {
                "mergeValues": True,
                "showValue": "never",
                "rowHeight": 0.9,
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            }
        case Kind.HEATMAP:
            return {
                "calculate": False,
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                "yAxis": {"unit": panel.unit.value},
                "cellGap": 1,
                "tooltip": {"show": True, "yHistogram": False},
            }
        case Kind.TABLE:
            return {"showHeader": True, "footer": {"show": False}}
