"""Who a client is and what it may do: the gates in front of all handlers, credentials and rules."""
