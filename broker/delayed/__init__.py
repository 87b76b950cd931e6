"""Delayed operations ("purgatory"): fetches that wait for data, produces that wait for the log, and
answers that wait for a condition.
"""
