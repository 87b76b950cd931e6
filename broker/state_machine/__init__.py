"""The replicated state that every replica computes from a Paxos group's log: the machine,
partitions with their offsets, producers and writers, and the chunks of a checkpoint. Read first:
`machine.py`, `partition.py`.
"""
