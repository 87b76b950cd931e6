"""The protocol as explicit-state models, and the traces of worlds judged by its rules."""
