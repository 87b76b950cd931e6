"""Files as a Protocol (`files.py`), the real ones and those in memory; direct writes, the kernel's
queue, reading ahead; whether a disk is well and has room. Knows nothing of what is in the files.
"""
