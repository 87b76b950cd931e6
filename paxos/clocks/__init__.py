"""The clock that a node acts by (`clock`), and whether to trust it (`trust`)."""
