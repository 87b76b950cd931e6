"""Where a node can be made to die (hurt_node.py), and what must be going on for each point."""

from typing import Final

CRASHED: Final = 86
"""The exit code of a node that died at its point, as ordered."""
TORN: Final = "wal-write.torn"


def _both(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.{side}" for name in names for side in ("before", "after"))


UNDER_LOAD: Final = (
    *_both("wal-write", "fsync", "mark-write", "accept", "accept-received", "vote"),
    TORN,
    *_both("learn", "apply", "answer"),
)
"""Points that a node passes all the time if it is master of some groups and follows in others."""
AT_SEGMENTS: Final = _both("segment-switch", "segment-rename")
"""Passed when the log goes on in the next file, every few seconds under load."""
AT_STEALS: Final = _both("steal")
"""Passed when a master is given away."""
AT_ELECTIONS: Final = _both("promise")
"""Passed when a node that was master is lost."""
AT_START: Final = _both("identity-rename", "catch-up")
"""Passed by a node that was away for a while."""
AT_UPKEEP: Final = _both(
    "checkpoint-write",
    "checkpoint-fsync",
    "checkpoint-rename",
    "retire",
    "settle-append",
    "settle-drop",
)
"""Passed by a node with a short log, every few seconds under load."""
AT_TRANSFER: Final = _both("install-write", "install")
"""Passed by a node that was away until its peers' logs did not reach back to it any more."""
POINTS: Final = (*UNDER_LOAD, *AT_SEGMENTS, *AT_STEALS, *AT_ELECTIONS, *AT_START)
