"""What the product reaches and costs, and what others do. `python -m benchmarks` runs the suite.
Read first: `suites/suite.py`, `suites/runs.py`.
"""
