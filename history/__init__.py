"""What clients saw, and whether logs could have shown it to them (docs/history.md). Pure.
Read first: `record.py`, `checker.py`.
"""
