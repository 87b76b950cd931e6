"""Record batches: reading, writing, compressing and validating them; their records as columns,
spans and times; write tokens in their headers.
"""
