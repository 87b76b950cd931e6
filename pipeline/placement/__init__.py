"""Weights of Paxos groups from load reports, published for the planner. `logic.py` is pure."""
