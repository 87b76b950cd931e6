"""From an offset, or a time, to buffers: in memory, in the log, in cold segments. A thread reads
what has to wait for the disk.
"""
