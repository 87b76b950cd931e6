"""Places in a partition as an operator writes them: an offset, a time, some records back."""

from datetime import UTC, datetime
from typing import Final

from cli.clusters.kafka_commands import ClientError

WHERE: Final = "beginning, end, an offset, -N (--from=-N), a time (2026-01-31T12:00), or @MS"


def time_ms(where: str, expected: str = WHERE) -> int:
    """A time in ISO format (UTC unless it says otherwise), or milliseconds after an `@`.

    Raises:
        ClientError: if it is neither.
    """
    if where[:1] == "@" and where[1:].isdecimal():
        return int(where[1:])
    try:
        time = datetime.fromisoformat(where)
    except ValueError:
        raise ClientError(f"cannot go to '{where}': expected {expected}") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
