"""What this machine can do at all, and what share of it we reach (docs/performance.md)."""
