"""Files as a Protocol (`files.py`), the real ones and those in memory; direct writes, the kernel's
queue, reading ahead; a disk's health and free space. Knows nothing of what is in the files.
"""
