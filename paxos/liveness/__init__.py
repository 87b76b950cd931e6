"""Elections, timers, renewals and questions to peers: a mistake here costs time and no safety.
Whatever is proposed from here goes through the rules in `paxos.state.core` and `paxos.changes`.
"""
