"""Local clusters of real processes: what one is (`spec.py`), starting and stopping it
(`launcher.py`), faults, health, rolling restarts, a workload. The commands that use it are in cli/.
"""
