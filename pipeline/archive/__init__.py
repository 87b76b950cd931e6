"""Topics to parquet and back, every record exactly once. `logic.py` is pure."""
