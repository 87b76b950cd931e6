"""The Kafka protocol, without I/O. `codec/` declares messages and compiles codecs of them,
`messages/` has the messages, `records/` batches and what is in them. Here: the table of APIs,
framing, errors.

Read first: `codec/schema.py`, `apis.py`, `records/batch.py`.
"""
