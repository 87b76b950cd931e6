"""The write-ahead log, one for all groups of a node: its bytes are in `storage/format.py`, its two
halves while it runs in `wal.py`, a restart in `opening.py` and `recovery.py`, damage in `walk.py`.
"""
