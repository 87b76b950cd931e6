"""Records in and out: Produce, Fetch, ListOffsets, DeleteRecords, leader epochs, producer ids. Most
Produce requests go through `produce_fast_path.py` (ADR 30).
"""
