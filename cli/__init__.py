"""`evenkeel ...`: a module for each command, found by its name; `main.py` has the table of all.
Commands print and ask; what they ask is in cluster/, evenkeel/ and the nodes.
"""
