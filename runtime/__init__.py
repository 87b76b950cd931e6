"""The shell: everything of a node that touches the world. `node.py` builds it; nothing of the
product imports it. `shell.py` wires one node, `settings.py` makes the parts' values of the
configuration.

Its folders, from the top to the bottom, each importing only what is below it: console, admin,
metrics; balancing, upkeep, clients, peers; engine; disk, membership, http; network; config; system.

Read first: `engine/engine.py`, `network/dataplane.py`, `shell.py`.
"""
