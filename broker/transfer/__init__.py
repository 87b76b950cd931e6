"""State transfer: a node that the logs do not reach back to gets data and a checkpoint from another
one. Two pure machines, `source.py` and `sink.py`, and the driver that carries out their effects.
"""
