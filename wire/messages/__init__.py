"""Kafka's messages as classes, one module for each family of APIs. Declarations only."""
