"""Who a client is, and what proves it. Pure: bytes and time in, bytes, principals and decisions
out; no sockets.
"""
