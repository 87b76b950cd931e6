"""What is looked at all the time in worlds of whole nodes, beside simulator.whole.watch."""
