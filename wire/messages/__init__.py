"""Kafka's messages as classes, a module for each family of APIs. Declarations only."""
