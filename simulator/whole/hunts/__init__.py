"""The faults of issues 22, 23 and after, planted again, and looked for in worlds of whole nodes."""
