"""The client's settings for its cluster, as a frozen value that cannot be wrong."""

from typing import Final

import attrs

from pyspark_evenkeel.client.security import SecuritySettings
from pyspark_evenkeel.errors import ConfigurationError
from wire.addresses import parse_addresses
from wire.framing import KIB, MIB

FETCH_BYTES_LEAST: Final = 64 * KIB


@attrs.frozen(kw_only=True)
class ClusterSettings:
    """`bootstrap` is `host:port,host:port`.

    A broker that does not answer within `request_ms` is given up: that is the cost of a hanging
    one. Failed requests are retried, with pauses from `backoff_ms` doubling up to `backoff_max_ms`,
    until there has been no progress for `retry_ms`. One fetch brings at most `fetch_bytes`, or one
    batch.
    """

    bootstrap: str
    security: SecuritySettings = attrs.Factory(SecuritySettings)
    client_id: str = "pyspark-evenkeel"
    connect_ms: int = 5_000
    request_ms: int = 10_000
    retry_ms: int = 60_000
    backoff_ms: int = 20
    backoff_max_ms: int = 1_000
    fetch_bytes: int = 4 * MIB

    def __attrs_post_init__(self) -> None:
        for name in ("connect_ms", "request_ms", "retry_ms", "backoff_ms", "backoff_max_ms"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}", advice="at least 1")
        if self.fetch_bytes < FETCH_BYTES_LEAST:
            raise ConfigurationError(
                f"fetch_bytes is {self.fetch_bytes}", advice=f"at least {FETCH_BYTES_LEAST}"
            )
        assert self.addresses

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses to ask first.

        Raises:
            ConfigurationError: if `bootstrap` is not a list of addresses.
        """
        try:
            return parse_addresses(self.bootstrap)
        except ValueError as error:
            raise ConfigurationError(
                f"bootstrap.servers: {error}", advice="write host:port,host:port"
            ) from None
