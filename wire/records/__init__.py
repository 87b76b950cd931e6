"""Record batches: reading, writing, compressing, validating them; columns, spans and times of what
is in them; write tokens in their headers.
"""
