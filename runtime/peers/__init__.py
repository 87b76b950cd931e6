"""Links between nodes: one connection for each direction, bounded queues, and the frames. `paxos`
defines the meaning of Paxos messages, and engine/ handles them.
"""
