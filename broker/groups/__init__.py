"""Consumer groups: the live half of each coordinator on this node, and asking consumers for their
progress."""
