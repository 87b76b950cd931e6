"""Who a client is, what it may do and how much: pure, bytes and time in, bytes, principals and
decisions out; no sockets."""
