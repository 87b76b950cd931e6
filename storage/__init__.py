"""Files of one node; no network, no trio. `log/` is the write-ahead log, `cold/` what is older than
its window, `disk/` files behind a Protocol. The modules here are about the data directory itself:
identity, checkpoints, evidence, and the inspection of a stopped node's directory.

Read first: `log/wal.py`, `log/recovery.py`, `checkpoints.py`, `cold/store.py`.
"""
