"""Who a client is: the gate in front of all other handlers, and users' credentials."""
