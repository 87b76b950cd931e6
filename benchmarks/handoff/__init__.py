"""The ways to hand a group over, side by side (docs/handoff.md)."""
