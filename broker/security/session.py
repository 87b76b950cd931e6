"""How far a connection of a SASL listener has come in saying who it is.

    HANDSHAKE -> EXCHANGE -> PROVED -> (SaslHandshake again: KIP-368) EXCHANGE -> ...

Any failure leads to ENDED, and the connection is closed.
"""

from collections.abc import Callable
from enum import Enum

from broker.security.exchanges import Exchange
from broker.security.principal import Principal
from broker.security.users import Proof


class Stage(Enum):
    HANDSHAKE = "handshake"
    """Waits for SaslHandshake; ApiVersions may come first."""
    EXCHANGE = "exchange"
    """Waits for messages of the mechanism."""
    PROVED = "proved"
    ENDED = "ended"
    """Failed: the answer is delayed, and nothing more is read."""


class Session:
    __slots__ = (
        "asked_versions",
        "exchange",
        "expires_boot_ns",
        "failure_counted",
        "mechanism",
        "principal",
        "proof",
        "proved_boot_ns",
        "raw",
        "stage",
    )

    def __init__(self) -> None:
        self.stage = Stage.HANDSHAKE
        self.asked_versions = 0
        """How often it has asked for ApiVersions: the answers wait until it reads them."""
        self.mechanism = ""
        """What the client has asked for; kept for re-authentication, which may not change it."""
        self.exchange: Exchange | None = None
        self.raw = False
        """SaslHandshake v0: the mechanism's messages come as bare frames (KIP-43)."""
        self.principal: Principal | None = None
        """Once proved; it stays through a re-authentication."""
        self.proof: Proof | None = None
        self.failure_counted = False
        self.proved_boot_ns = 0
        self.expires_boot_ns = 0
        """From then on only a re-authentication is served; 0: never."""

    @property
    def proved(self) -> bool:
        """Whether requests are served."""
        return self.stage is Stage.PROVED

    def has_expired(self, boot_ns: int, renewal_ns: int) -> bool:
        """Whether its time is over; a re-authentication that has begun has `renewal_ns` more."""
        left_ns = 0 if self.proved else renewal_ns
        return 0 < self.expires_boot_ns <= boot_ns - left_ns

    def is_revoked(self, holds: Callable[[Proof], bool]) -> bool:
        """Whether its user no longer has the credential that proved it."""
        return self.proof is not None and not holds(self.proof)
