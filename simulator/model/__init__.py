"""The protocol as explicit-state models, and the specification that judges the worlds' traces."""
