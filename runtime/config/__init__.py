"""The configuration of one node. `sections.py` has every setting with its default, its range and
its meaning; `fields.py` has the kinds of settings; `config.py` reads and checks a configuration.
"""
