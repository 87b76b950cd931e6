"""Which group is stolen next and why every other one is not (`judgement.py`), from what a node
knows (`view.py`), and the state machine that does it (`steal.py`).
"""
