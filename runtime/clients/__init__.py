"""Connections of Kafka clients: requests in, answers out in order, limits and back-pressure.
`broker` handles the requests.
"""
