"""What groups weigh, from load reports; published as weights for the planner. `logic.py` is
pure."""
