"""The shell: everything in a node that does I/O. `node.py` builds it; no pure package imports it.
`shell.py` connects the parts of one node, `settings.py` makes their settings from the
configuration.

Its folders from top to bottom, each importing only those below it: console, admin, metrics;
balancing, upkeep, clients, peers; engine; disk, membership, http; network; config; system.

Read first: `engine/engine.py`, `network/dataplane.py`, `shell.py`.
"""
