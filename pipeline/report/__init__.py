"""Samples of benchmarks as tables and pictures. `logic.py` is pure."""
