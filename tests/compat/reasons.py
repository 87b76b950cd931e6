"""Failures of clients that have been looked into: what the page says of them instead of an error.

Each is bound to what the failure looks like, so that another one is not taken for it.
"""

import re
from typing import Final

REASONS: Final[tuple[tuple[str, str, str, str], ...]] = (
    (
        "@platformatic/kafka",
        "a rolling restart",
        "leaveGroup failed",
        "all is read and stored, but the client cannot commit or leave any more: it asks for the "
        "coordinator once in its life, and takes NOT_COORDINATOR of a restarted node for a reason "
        "to ask that node again, as it would with Kafka",
    ),
)
"""The library, the row, an expression of the failure, and the reason."""


def reason_for(client: str, row: str, failure: str) -> str:
    for library, name, pattern, reason in REASONS:
        if client.startswith(library) and row == name and re.search(pattern, failure):
            return reason
    return failure
