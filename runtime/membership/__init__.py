"""Who the other nodes are and what this one may believe of them: the handshake of a link, admission
of a data directory, who is master where, whether a quorum is in touch, proposals to the registry.
"""
