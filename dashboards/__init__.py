"""Grafana dashboards, Prometheus' rules and alerts as descriptions, and what writes them to
files."""
