"""The engine: events of all groups in, one batch of the log and one frame for each peer out, a
round at a time. `ports.py` is what it needs of the parts above it. Read first: `Engine.end_round`.
"""
