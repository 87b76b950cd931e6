"""What every handler has at hand: the request and the broker (`context.py`), guards against one
another's trouble, refusals in the words of each API, serving in portions, who leads what.
"""
