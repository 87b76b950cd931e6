"""Kafka's group coordinator, pure. `replicated/` is the same on every replica, `live/` belongs to
one mastership and is forgotten with it; `coordinator.py` joins them. Here as well: the values that
are asked and answered (`model.py`), limits, timers.
"""
