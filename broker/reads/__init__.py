"""From an offset, or a time, to buffers: in memory, in the log, in cold segments. What has to wait
for the disk is read by a thread.
"""
