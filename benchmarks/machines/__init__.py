"""Nodes behind network links of their own, on one machine."""
