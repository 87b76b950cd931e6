"""The shell of `balancer`: the loops that steal and plan, handovers on the master's side, which
groups this node hosts, and its load reports.
"""
