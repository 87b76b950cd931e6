"""Writing: what Spark calls, what a task does, columns to records, chunks, what is sent again."""
