"""Places in a partition as an operator writes them: an offset, a time, some records back."""

from datetime import UTC, datetime
from typing import Final

from cli.clusters.kafka_commands import ClientError

WHERE: Final = "beginning, end, an offset, -N (--from=-N), a time (2026-01-31T12:00), or @MS"

TIME_MAX: Final = 2**63 - 1


def time_ms(where: str, expected: str = WHERE) -> int:
    """A time in ISO format (UTC unless it says otherwise), or milliseconds after an `@`; not before
    1970: to brokers, negative numbers mean other things, -1 the end of a partition.

    Raises:
        ClientError: if it is neither.
    """
    if where[:1] == "@" and where[1:].isdecimal():
        return min(int(where[1:]), TIME_MAX)
    try:
        time = datetime.fromisoformat(where)
    except ValueError:
        raise ClientError(f"cannot go to '{where}': expected {expected}") from None
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return max(0, int(since * 1000))
