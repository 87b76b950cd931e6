"""Who somebody is and what they may do. Pure: bytes and time in, bytes, principals and decisions
out; no sockets."""
