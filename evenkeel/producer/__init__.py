"""The producer, the queue of one partition, and which partition a record goes to."""
