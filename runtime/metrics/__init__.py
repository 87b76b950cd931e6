"""What a node tells of itself: `collector.py` reads the parts' statistics when Prometheus asks, its
neighbours have a subject each, `status.py` is GET /status.
"""
