"""Between the engine and `storage`: writing the log, recovery at the start, reading the log for
peers that are behind, scrubbing, repair, and disk pressure.
"""
