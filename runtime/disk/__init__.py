"""What stands between the engine and `storage`: writing the log, recovery at the start, reading it
for peers that are behind, scrubbing, repair, and what is refused while a disk is nearly full.
"""
