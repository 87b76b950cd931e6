"""Writing: what Spark calls, the work of a task, columns to records, chunks, repetitions."""
