"""Files of one node; no network, no trio. `log/` is the write-ahead log, `cold/` what is older than
its window, `disk/` files behind a Protocol. The modules here are what lies beside them: identity,
checkpoints, evidence; and looking at a stopped node's directory.

Read first: `log/wal.py`, `log/recovery.py`, `checkpoints.py`, `cold/store.py`.
"""
