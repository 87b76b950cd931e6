"""Services that every part of the shell may use: clocks, the journal, threads for work that would
block the event loop, memory accounting, signals. Imports no other part.
"""
