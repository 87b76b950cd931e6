"""Idempotent producers as the master meets them: ids, connections, sequences with gaps, producers
that nobody knows, and the validation of their batches. What is replicated of them is in
state_machine/.
"""
