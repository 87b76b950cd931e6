"""The registry's document, the planner, and the machine that steals: pure functions and state
machines. `planning.py` and `replica_planning.py` are the loops on the registry's master, above all
the rest; below them stealing/, registry/, planner/.

Read first: `registry/registry.py`, `stealing/judgement.py`, `stealing/steal.py`,
`planner/planner.py`.
"""
