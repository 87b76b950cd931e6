"""What a replica remembers besides its acceptor, proposer, learner and lease, and the moves that
its parts make together. Read `core` first.
"""
