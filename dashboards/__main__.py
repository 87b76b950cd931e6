"""`python -m dashboards` (make dashboards): writes what Grafana and Prometheus read."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dashboards.alerts import ALERTS
from dashboards.balancer import BALANCER_DASHBOARD
from dashboards.clients import CLIENTS_DASHBOARD
from dashboards.cluster import CLUSTER_DASHBOARD
from dashboards.masters import MASTERS_DASHBOARD
from dashboards.panels import Dashboard, to_json
from dashboards.rules import RECORDINGS
from dashboards.storage import STORAGE_DASHBOARD
from dashboards.yaml import alert_rules, recording_rules

DASHBOARDS: Final[Sequence[Dashboard]] = (
    CLUSTER_DASHBOARD,
    MASTERS_DASHBOARD,
    BALANCER_DASHBOARD,
    STORAGE_DASHBOARD,
    CLIENTS_DASHBOARD,
)
HERE: Final = Path(__file__).parent


def files() -> Iterator[tuple[Path, str]]:
    """The path below this folder, and the text, of every file."""
    for dashboard in DASHBOARDS:
        text = json.dumps(to_json(dashboard), indent=1) + "\n"
        yield Path("grafana") / f"{dashboard.uid}.json", text
    yield Path("prometheus/recording.yml"), recording_rules("evenkeel-recording", RECORDINGS)
    yield Path("prometheus/alerts.yml"), alert_rules(ALERTS)


def main() -> None:
    for path, text in files():
        (HERE / path).write_text(text, encoding="utf-8")
        print(f"dashboards/{path}")


if __name__ == "__main__":
    main()
