"""Commands for who may do what: certificates of nodes and clients."""
