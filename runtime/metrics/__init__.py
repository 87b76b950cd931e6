"""Metrics and status of a node: `collector.py` reads the parts' statistics when Prometheus scrapes,
the other modules have one subject each, and `status.py` answers GET /status.
"""
