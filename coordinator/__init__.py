"""Kafka's group coordinator, pure.

`replicated/` is the same on every replica. `live/` belongs to one mastership and is forgotten with
it. `coordinator.py` joins the two. This package also has the requests and responses (`model.py`),
the limits and the timers.
"""
