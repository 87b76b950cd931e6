"""Cold segments: the batches of one partition in the order of offsets, outside of the log.
`store.py` is what others use; each of its neighbours is one thing that may be done to such a file.
"""
