"""Who may do what: the gate in front of all handlers, and the rules themselves."""
