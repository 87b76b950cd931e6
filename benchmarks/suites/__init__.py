"""The benchmarks of `python -m benchmarks`, and the code that runs them."""
