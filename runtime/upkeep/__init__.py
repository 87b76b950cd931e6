"""What a node does beside serving: checkpoints, tiering and compaction of cold data, state
transfers, and how full its disk is. Threads do the work; the loop starts them and hears of their
end.
"""
