"""The engine: in each round, events of all groups in, one log batch and one frame per peer out.
`ports.py` has its interfaces to the parts around it. Read first: `Engine.end_round`.
"""
