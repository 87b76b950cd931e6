"""Links between nodes: one connection for each direction, bounded queues, the frames on them. What
Paxos messages mean is `paxos`' business, and what the engine does with them is in engine/.
"""
