"""Who has logged in: sessions of browsers, tokens of programs, and passwords seen lately.

A secret is random, is told once, and is kept as its SHA-256 only: who reads this memory cannot use
it. It is of this node alone and ends with the node. A session ends at its time, when it is logged
out, and as soon as its user no longer has the password that proved it: that is asked with every
request.
"""

import hashlib
import hmac
from collections.abc import Callable
from enum import Enum
from typing import Final

import attrs

from broker.security.principal import Principal
from broker.security.users import Proof

SESSIONS_MAX: Final = 1024
OF_USER_MAX: Final = 64
"""One more ends the oldest one of that user."""
BASIC_S: Final = 60
"""How long a password that was right need not be computed again (Prometheus sends it every few
seconds)."""
_S: Final = 1_000_000_000


class Kind(Enum):
    BROWSER = "browser"
    TOKEN = "token"  # noqa: S105 (a kind)
    BASIC = "password"
    LOCAL = "local"
    """The file that a node writes for this machine's administrator."""


@attrs.frozen(eq=False)
class Session:
    kind: Kind
    principal: Principal
    proof: Proof | None = attrs.field(repr=False)
    """None: nothing in the registry that could change."""
    expires_boot_ns: int | None
    csrf: str = attrs.field(default="", repr=False)
    """What a page has to send with what changes something; browsers only."""


class Sessions:
    """`holds`: whether a user still has the password that proved it. `new_secret` is not to be
    guessed."""

    def __init__(
        self,
        holds: Callable[[Proof], bool],
        now_boot_ns: Callable[[], int],
        new_secret: Callable[[], str],
        *,
        session_s: int,
    ) -> None:
        self._holds, self._now, self._new_secret = holds, now_boot_ns, new_secret
        self.session_s = session_s
        self._key = new_secret().encode()
        """Of the names under which passwords are remembered."""
        self._known: dict[bytes, Session] = {}
        """Oldest first."""

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, kind: Kind, principal: Principal, proof: Proof | None) -> tuple[str, Session]:
        """A new session, and the secret that stands for it."""
        secret = self._new_secret()
        csrf = self._new_secret() if kind is Kind.BROWSER else ""
        lasts_s = None if kind is Kind.LOCAL else self.session_s
        return secret, self._add(_hashed(secret), kind, principal, proof, lasts_s, csrf)

    def remember(self, header: str, principal: Principal, proof: Proof | None) -> Session:
        """A password that was right, as it came in an Authorization header."""
        return self._add(self._name(header), Kind.BASIC, principal, proof, BASIC_S, "")

    def of_token(self, secret: str) -> Session | None:
        """The session of a token that a program has shown, if it is alive."""
        found = self._find(_hashed(secret))
        return found if found is not None and found.kind in (Kind.TOKEN, Kind.LOCAL) else None

    def of_cookie(self, secret: str) -> Session | None:
        found = self._find(_hashed(secret))
        return found if found is not None and found.kind is Kind.BROWSER else None

    def of_header(self, header: str) -> Session | None:
        """The session of a password that was right a moment ago."""
        return self._find(self._name(header))

    def is_alive(self, session: Session) -> bool:
        expired = session.expires_boot_ns is not None and self._now() >= session.expires_boot_ns
        return not expired and (session.proof is None or self._holds(session.proof))

    def is_open(self, session: Session) -> bool:
        """Whether it is alive, and nobody has ended it: for what goes on after its request."""
        if session.kind is Kind.BASIC:  # remembered for a while only, and proved when it began
            return session.proof is None or self._holds(session.proof)
        return self.is_alive(session) and any(one is session for one in self._known.values())

    def end(self, session: Session) -> None:
        self._known = {name: one for name, one in self._known.items() if one is not session}

    def _find(self, name: bytes) -> Session | None:
        found = self._known.get(name)
        if found is not None and not self.is_alive(found):
            del self._known[name]
            return None
        return found

    def _add(
        self,
        name: bytes,
        kind: Kind,
        principal: Principal,
        proof: Proof | None,
        lasts_s: int | None,
        csrf: str,
    ) -> Session:
        expires = None if lasts_s is None else self._now() + lasts_s * _S
        session = Session(kind, principal, proof, expires, csrf)
        if len(self._known) >= SESSIONS_MAX:
            self._known = {key: one for key, one in self._known.items() if self.is_alive(one)}
        own = [key for key, one in self._known.items() if one.principal == principal]
        if kind is not Kind.LOCAL and len(own) >= OF_USER_MAX:
            del self._known[own[0]]
        elif len(self._known) >= SESSIONS_MAX:
            del self._known[next(key for key in self._known if self._may_go(key))]
        self._known[name] = session
        return session

    def _may_go(self, name: bytes) -> bool:
        return self._known[name].kind is not Kind.LOCAL

    def _name(self, header: str) -> bytes:
        return hmac.digest(self._key, header.encode("utf-8", "surrogateescape"), "sha256")


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
