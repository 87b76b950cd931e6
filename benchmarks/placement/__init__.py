"""All masters on one node against masters evenly spread."""
