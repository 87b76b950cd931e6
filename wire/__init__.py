"""The Kafka protocol, without I/O. `codec/` declares messages and compiles their codecs,
`messages/` has the messages, `records/` record batches and their contents. The modules here are the
table of APIs, framing and errors.

Read first: `codec/schema.py`, `apis.py`, `records/batch.py`.
"""
