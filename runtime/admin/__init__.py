"""What an operator may ask of a node over HTTP: routes that only look, and those of the balancer
and of the nodes of the cluster.
"""
