"""What every handler needs: the request and the broker (`context.py`), isolation of one request's
failures from others, refusals in each API's format, serving in portions, and who leads what.
"""
