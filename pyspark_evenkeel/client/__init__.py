"""A blocking Kafka client without threads, as Spark's driver and workers need one. It knows nothing
of Spark."""
