"""Who is there and what it may do. Pure: bytes and time in, bytes, principals and decisions out; no
sockets, topics or tasks (ADR 66).
"""
