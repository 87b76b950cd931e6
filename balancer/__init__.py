"""The registry's document, the planner, and the machine that steals: pure functions and state
machines. `planning.py` and `replica_planning.py`, the loops on the registry's master, are on top;
below them are stealing/, registry/ and planner/.

Read first: `registry/registry.py`, `stealing/judgement.py`, `stealing/steal.py`,
`planner/planner.py`.
"""
