"""One group's Multi-Paxos with lease and steal, and many groups side by side. Pure: a function of
(state, time, event). Who checks the safety argument needs nothing else.

Read first: `step.py`, `acceptor.py`, `replica.py`, `handover.py`.
"""
