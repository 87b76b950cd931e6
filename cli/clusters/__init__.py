"""Which cluster a command acts on, and how it is asked: contexts, addresses, HTTP and Kafka."""
