"""Older ways to hand a group over, kept to be measured against the single propose; `older` names
the rules that each of them does not keep.
"""
