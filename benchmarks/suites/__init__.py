"""The benchmarks of `python -m benchmarks`, and what runs them."""
