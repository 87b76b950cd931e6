"""The life of records: retention, tiering to cold segments, compaction, and the disk space that
this will need.
"""
