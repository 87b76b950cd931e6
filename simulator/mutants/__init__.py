"""Planted bugs by subject, and how one is planted; `catalogue.py` has all. `make mutants` hunts
them."""
