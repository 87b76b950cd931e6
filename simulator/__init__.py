"""Deterministic worlds around the production core: virtual time, simulated network, disks and
clocks. `world.py` makes one from a seed, `swarm.py` runs many, `script.py` runs stories by hand.

Read first: `world.py`, `node/node.py`, `checkers/protocol.py`.
"""
