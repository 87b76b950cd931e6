"""The way of a command into a Paxos group's log: commands and their bytes; the intake, which
queues, proposes and answers once; and group commit. Imports no other part. Read first: `intake.py`.
"""
