"""What this machine can do at best, and what share of it we reach (docs/performance.md)."""
