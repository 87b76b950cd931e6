"""Topics, their settings and where their replicas are: looked at, and changed by way of the
registry."""
