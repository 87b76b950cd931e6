"""Cold segments: the batches of one partition in the order of offsets, outside of the log.
Other packages use `store.py`; each of the other modules does one thing to such a file.
"""
