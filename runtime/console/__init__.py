"""The web console: messages between nodes for it (`messages.py`), the picture of the cluster made
from them, and its watchers. The static files are in dashboards/console/.
"""
