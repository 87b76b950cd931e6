"""Simulated nodes: the production core of their groups, disks, threads, and the two kinds of
machines on top (`command_node.py` is a stand-in, `broker_node.py` has the production broker)."""
