"""Task groups: any tasks shared out among members over a ledger. `ledger.py` and `member.py` are
pure; `group.py` is what users see.
"""
