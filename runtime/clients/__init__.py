"""Connections of Kafka clients: requests in, answers out in their order, and what keeps a crowd of
clients within its limits. What a request means is `broker`'s business.
"""
