"""What this node knows of the others and of itself: the handshake of a link, admission of a data
directory, masters of other groups, contact with a quorum, proposals to the registry.
"""
