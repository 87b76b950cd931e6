"""The write-ahead log, one for all groups of a node: its bytes are in `storage/format.py`, the
running log is in `wal.py`, a restart in `opening.py` and `recovery.py`, damage in `walk.py`.
"""
