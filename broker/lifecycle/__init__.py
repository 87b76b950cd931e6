"""What becomes of records with time: retention, tiering to cold segments, compaction, and how much
disk that will need.
"""
