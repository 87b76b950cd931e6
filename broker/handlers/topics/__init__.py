"""Topics, their settings and the places of their replicas: described, and changed through the
registry."""
