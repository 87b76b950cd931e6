"""The configuration of one node. `sections.py` has every setting with its default, its range and
one sentence; `fields.py` says what a setting is made of; `config.py` reads and checks the whole.
"""
