"""Grafana dashboards, and Prometheus' rules and alerts, as values; `__main__` writes the files."""
