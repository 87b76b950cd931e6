"""Task groups: any tasks, divided among members over a ledger. `ledger.py` and `member.py` are
pure; `group.py` is the interface for users.
"""
