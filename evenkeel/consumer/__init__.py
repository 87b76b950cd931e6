"""The consumer: fetching, group membership, assigning partitions, automatic commits."""
