"""Background jobs of a node: checkpoints, tiering and compaction of cold data, state transfers, and
disk usage. Threads do the work; the loop starts their jobs and takes the results.
"""
