"""Sockets without a protocol: the data plane (one epoll descriptor, plain callbacks), channels,
listeners, and how many connections are let in. What speaks over them is in clients/ and peers/.
"""
