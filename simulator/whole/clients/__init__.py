"""Clients that behave as librdkafka's, Java's and kafkajs's do: one engine, a table of behaviours.

`families.py` is the table, `view.py` what a client knows of the cluster, `producing.py` and
`consuming.py` the engines, `liar.py` a client that says what is not so.
"""
