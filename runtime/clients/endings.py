"""Why connections of clients end, as it is logged."""

from collections.abc import Callable
from typing import Final

from runtime.system.journal import Journal

FAULTS_LOGGED_PER_S: Final = 10
CUT_OFF: Final = "this node is cut off from its peers"
USUAL_ENDINGS: Final = (
    "closed by the other side",
    "receive failed",
    "send failed",
    "idle",
    "this node stops",
    CUT_OFF,
)
"""Reasons that are not a client's fault."""


class Endings:
    def __init__(self, journal: Journal, boot_ns: Callable[[], int]) -> None:
        self._journal, self._boot_ns = journal, boot_ns
        self._since_ns = 0
        self._logged = 0

    def tell(self, host: str, reason: str) -> None:
        """Usual reasons at the level debug, faults as warnings, but only FAULTS_LOGGED_PER_S of
        them."""
        if reason.startswith(USUAL_ENDINGS):
            self._journal.debug("client gone", host=host, reason=reason)
            return
        now = self._boot_ns()
        if now - self._since_ns > 1_000_000_000:
            self._since_ns, self._logged = now, 0
        self._logged += 1
        if self._logged <= FAULTS_LOGGED_PER_S:
            self._journal.warning("client closed", host=host, reason=reason)
