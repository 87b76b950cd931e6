"""One group's Multi-Paxos with lease and steal, and many groups side by side. Pure: a function of
(state, time, event). Checking the safety argument takes nothing else.

Read first: `step.py`, `acceptor.py`, `replica.py`, `changes/handover.py`.
"""
