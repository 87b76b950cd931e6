"""Records in and out: Produce, Fetch, ListOffsets, DeleteRecords, leader epochs, producer ids.
`produce_fast_path.py` is what most Produce requests take (ADR 30).
"""
