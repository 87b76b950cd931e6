"""`evenkeel demo`: its script, what it shows while it runs, and its findings."""
