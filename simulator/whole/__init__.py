"""Worlds of whole nodes: `node.py`'s Node, as it is, on simulated machines.

`process.py` runs the node's event loop and its threads as greenlets in virtual time, `streams.py`
is TCP, `disk.py` a disk that takes its time, `machine.py` what `runtime.machine` asks for,
`host.py` one machine with what it keeps over its lives. `world.py` joins machines, clients and
checkers. Read first: `process.py`, `world.py`. What of a node is not run here: docs/simulator.md.
"""
