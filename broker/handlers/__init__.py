"""One module for each family of requests, in a folder for each subject. A handler decodes nothing:
it gets a message of `wire` and answers with one. Read first: `records/produce.py`,
`records/fetch.py`.
"""
