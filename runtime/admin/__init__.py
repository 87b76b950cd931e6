"""Administration over HTTP: read-only routes, and those for the balancer and for the nodes of the
cluster.
"""
