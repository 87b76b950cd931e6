"""What `make model` runs: every model with its bounds, and every model without each rule.

A run is a source file, its bounds (compiled in, to keep states small) and the rules that are
switched off. The bounds contain those of the models that the design began with (docs/model.md).
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

import attrs


class Expected(Enum):
    """The verdict of a run, as the models print it."""

    HOLDS = "holds"
    VIOLATED = "violated"
    STARVED = "starved"
    """Safe, but something that must be possible is not: shows that a liveness rule is missing."""


@attrs.frozen
class Run:
    source: str
    bounds: Mapping[str, int]
    flag: str = ""
    expected: Expected = Expected.HOLDS
    same_outcomes: str = ""
    """Runs with the same word differ only in their reductions: they must see the same outcomes."""
    slow: bool = False
    """Left out with --quick."""

    @property
    def program(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What has to be compiled: runs that differ only in their flag share it."""
        return self.source, tuple(sorted(self.bounds.items()))


def _log(
    proposers: int, ballots: int, slots: int, crashes: int = 0, *, reduction: int, members: int = 0
) -> dict[str, int]:
    return {
        "PROPOSERS": proposers,
        "BALLOTS": ballots,
        "SLOTS": slots,
        "CRASHES": crashes,
        "REDUCTION": reduction,
        "MEMBERS": members,
    }


def _lease(
    nodes: int, window: int, *, lease: int = 2, margin: int = 1, reduction: int = 1
) -> dict[str, int]:
    return {
        "NODES": nodes,
        "WINDOW": window,
        "LEASE_TICKS": lease,
        "MARGIN_TICKS": margin,
        "REDUCTION": reduction,
    }


ANY: Final = 9
"""No bound on crashes."""

MODELS: Final = (
    # The longest first: two run at a time.
    Run("lease.cpp", _lease(3, 3), slow=True),
    Run("lease.cpp", _lease(2, 4), slow=True),
    Run("log.cpp", _log(3, 3, 3, ANY, reduction=2), slow=True),
    Run("log.cpp", _log(2, 2, 3, ANY, reduction=1, members=1), slow=True),
    Run("log.cpp", _log(2, 3, 2, 0, reduction=1, members=1), slow=True),
    Run("forward.cpp", {}),
)

REDUCTIONS: Final = (
    Run("log.cpp", _log(2, 2, 2, 1, reduction=0), same_outcomes="2 2 2 1", slow=True),
    Run("log.cpp", _log(2, 2, 2, 1, reduction=1), same_outcomes="2 2 2 1"),
    Run("log.cpp", _log(2, 2, 2, 1, reduction=2), same_outcomes="2 2 2 1"),
    Run("log.cpp", _log(3, 3, 2, 0, reduction=1), same_outcomes="3 3 2 0", slow=True),
    Run("log.cpp", _log(3, 3, 2, 0, reduction=2), same_outcomes="3 3 2 0"),
    Run("log.cpp", _log(2, 2, 3, 1, reduction=1), same_outcomes="2 2 3 1"),
    Run("log.cpp", _log(2, 2, 3, 1, reduction=2), same_outcomes="2 2 3 1"),
    Run("log.cpp", _log(2, 2, 2, 0, reduction=0, members=1), same_outcomes="members", slow=True),
    Run("log.cpp", _log(2, 2, 2, 0, reduction=1, members=1), same_outcomes="members"),
    Run("lease.cpp", _lease(2, 2, reduction=0), same_outcomes="lease 2 2"),
    Run("lease.cpp", _lease(2, 2, reduction=1), same_outcomes="lease 2 2"),
    Run("lease.cpp", _lease(3, 2, reduction=0), same_outcomes="lease 3 2", slow=True),
    Run("lease.cpp", _lease(3, 2, reduction=1), same_outcomes="lease 3 2", slow=True),
)


def _without(source: str, bounds: Mapping[str, int], *flags: str) -> Iterator[Run]:
    for flag in flags:
        yield Run(source, bounds, flag, Expected.VIOLATED)


_ONE_BALLOT: Final = _log(2, 1, 3, 1, reduction=1)
_TWO_BALLOTS: Final = _log(2, 2, 2, reduction=1)
_MEMBERS: Final = _log(2, 2, 3, ANY, reduction=1, members=1)
_THREE_BALLOTS: Final = _log(3, 3, 2, reduction=1)

WITHOUT_A_RULE: Final = (
    *_without("log.cpp", _THREE_BALLOTS, "BUG_NAIVE_FRESH_BALLOT", "BUG_RESUME_P1"),
    *_without("log.cpp", _log(2, 3, 2, reduction=1, members=1), "BUG_CFG_NOFOUNDCLOSE"),
    *_without("log.cpp", _MEMBERS, "BUG_CFG_NOCLOSE", "BUG_CFG_BYSLOT"),
    *_without(
        "log.cpp",
        _ONE_BALLOT,
        "BUG_REUSE_BALLOT",
        "BUG_SECOND_VALUE",
        "BUG_ACT_UNTIL_APPLY",
        "BUG_RESUME_SAME_B",
        "BUG_NO_INC",
        "BUG_CHAIN_NORANGE",
        "BUG_RESTART_ACT",
        "BUG_RENEW_SUSPENDED",
    ),
    *_without(
        "log.cpp",
        _TWO_BALLOTS,
        "BUG_STEAL_BEFORE_RECOVERED",
        "BUG_CHOSEN_BALLOT",
        "BUG_COMMIT_ANY",
        "BUG_NOFSYNC_PROMISE",
        "BUG_NOFSYNC_ACCEPT",
    ),
    Run("log.cpp", _TWO_BALLOTS, "BUG_ACCEPT_FROM_OWNER", Expected.STARVED),
    *_without(
        "lease.cpp",
        _lease(2, 2),
        "BUG_ACT_UNTIL_APPLY",
        "BUG_NO_CAS",
        "BUG_RESTART_ACT",
        "BUG_CLOCKS_BEYOND",
        "BUG_ACK_ANY",
        "BUG_READ_NO_EPOCH",
        "BUG_RENEW_SHORTEN",
    ),
    *_without(
        "lease.cpp",
        _lease(2, 2, lease=4, margin=2),
        "BUG_NO_HOLDER_MARGIN",
        "BUG_NO_OTHER_MARGIN",
    ),
    *_without("forward.cpp", {}, "BUG_NO_DEDUPE", "BUG_DEDUPE_LEQ", "BUG_ACK_GAP"),
)

ALL: Final = (*MODELS, *REDUCTIONS, *WITHOUT_A_RULE)
