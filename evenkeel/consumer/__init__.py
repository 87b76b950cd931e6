"""The consumer: fetching, membership of a group, sharing partitions, commits by itself."""
