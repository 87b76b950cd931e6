"""Who a client is, what it may do and how much. Pure: bytes and time in, bytes, principals and
decisions out; no sockets, topics or tasks (ADR 66)."""
