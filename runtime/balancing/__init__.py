"""The shell of `balancer`: the loops that steal and plan, the master's side of handovers, the
groups that this node hosts, and its load reports.
"""
