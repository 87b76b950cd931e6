"""Idempotent producers as the master sees them: ids, connections, sequence gaps, unknown producers,
and the validation of their batches. Their replicated state is in state_machine/.
"""
