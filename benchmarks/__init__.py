"""What the product achieves and costs, compared with others. `python -m benchmarks` runs the suite.
Read first: `suites/suite.py`, `suites/runs.py`."""
