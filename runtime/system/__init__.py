"""What every part of the shell may need of the operating system: clocks, the journal, threads for
work that would hold up the loop, the account of memory, what ends a process. Imports no other part.
"""
