"""Reading: batch and streaming queries, the offsets of a query by time, filters, columns."""
