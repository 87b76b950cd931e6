"""Sockets without a protocol: the data plane (one epoll descriptor, plain callbacks), channels,
listeners, and limits of connections. clients/ and peers/ have the protocols.
"""
