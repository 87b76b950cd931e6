"""Figures, comparison with earlier ones, the machine they were measured on, and tables of them."""
