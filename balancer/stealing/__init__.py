"""Which group is stolen next, and why every other one is not (`judgement.py`), from what a node
knows (`view.py`); and the state machine that carries out a steal (`steal.py`).
"""
