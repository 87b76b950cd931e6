"""Planted bugs by subject, and how to plant one; `make mutants` hunts all in `catalogue.py`."""
