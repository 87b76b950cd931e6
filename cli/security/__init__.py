"""Commands for who may do what: rules, certificates of nodes and clients."""
