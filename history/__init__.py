"""Histories: what clients saw, and a checker that decides whether real logs could have shown it
to them (docs/history.md). Pure. Read first: `record.py`, `checker.py`.
"""
