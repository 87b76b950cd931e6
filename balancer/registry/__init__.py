"""The registry: one replicated document on group 0's log, its commands and images, its parts
(nodes, topics, replica sets, steal tokens, policy), and load reports.
"""
