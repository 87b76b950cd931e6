"""SASL OAUTHBEARER (RFC 7628) as Kafka speaks it (KIP-255, KIP-768): a token in one message.

    client: n,,^Aauth=Bearer TOKEN^A^A
    we:     nothing, and the client is in; or {"status":"invalid_token"}
    client: ^A
    we:     the failure, in words

`^A` is the byte 1. An authorization id must be the name in the token. Extensions (KIP-342) are
read over: nothing here would use them.
"""

import json
from collections.abc import Callable
from typing import Final

from broker.security.exchanges import Challenge, Denied, Proved, Step, Work
from broker.security.principal import Principal
from broker.security.token_keys import KeysInUse
from broker.security.tokens import (
    TOKEN_BYTES_MAX,
    Signed,
    TokenError,
    TokenRules,
    UnknownKey,
    check,
    read_header,
)
from paxos.ids import Now

MESSAGE_BYTES_MAX: Final = TOKEN_BYTES_MAX + 1_024
_SEPARATOR: Final = b"\x01"
_AUTH: Final = b"\x01auth="
_SCHEME: Final = b"bearer "


class OauthExchange:
    def __init__(self, rules: TokenRules, keys: KeysInUse, now: Callable[[], Now]) -> None:
        self._rules, self._keys, self._now = rules, keys, now
        self._began = False
        self._refusal = ""

    def step(self, message: bytes) -> Step:
        if self._refusal:
            return Denied(self._refusal)  # whatever the client says, it was told already
        if self._began:
            return Denied("the exchange is over")
        self._began = True
        read = _read(message)
        if isinstance(read, Denied):
            return read
        authzid, token = read
        try:
            signed = read_header(token, self._keys.current, self._rules)
        except UnknownKey as error:
            self._keys.missed()
            return self._refused(error)
        except TokenError as error:
            return self._refused(error)
        now_ns = self._now().wall_ns
        return Work(lambda: self._check(signed, authzid, now_ns))

    def _check(self, signed: Signed, authzid: str, now_ns: int) -> Proved | Challenge | Denied:
        """In a thread; the loop leaves this exchange alone until it is done."""
        try:
            whom = check(signed, self._rules, now_ns / 1e9)
        except TokenError as error:
            return self._refused(error)
        if authzid and authzid != whom.name:
            text = "Client requested an authorization id that is different from the token's name"
            return Denied(f"Authentication failed: {text}")
        return Proved(Principal("User", whom.name), expires_wall_ns=int(whom.expires_s * 1e9))

    def _refused(self, error: TokenError) -> Challenge:
        """RFC 7628, section 3.2.2: the client gets a status, and answers before it is refused."""
        self._refusal = f"Authentication failed: {error}"
        told = {"status": error.status}
        if self._rules.scopes:
            told["scope"] = " ".join(self._rules.scopes)
        return Challenge(json.dumps(told, separators=(",", ":")).encode(), failure=str(error))


def _read(message: bytes) -> tuple[str, bytes] | Denied:
    """The authorization id, "" without one, and the token (RFC 7628, section 3.1)."""
    if len(message) > MESSAGE_BYTES_MAX:
        return Denied(f"an OAUTHBEARER message has at most {MESSAGE_BYTES_MAX} bytes")
    begins = message.find(_SEPARATOR)
    flag, _, names = message[: max(begins, 0)].partition(b",")
    authzid, comma, more = names.partition(b",")
    if flag not in (b"n", b"y") or not comma or more:
        return Denied("Invalid OAUTHBEARER message: it has no GS2 header")
    if authzid and not authzid.startswith(b"a="):
        return Denied("Invalid OAUTHBEARER message: its authorization id cannot be read")
    try:
        name = authzid[2:].decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        return Denied("Invalid OAUTHBEARER message: not UTF-8")
    if not message.endswith(_SEPARATOR * 2):
        return Denied("Invalid OAUTHBEARER message: it does not end")
    at = message.find(_AUTH, begins)
    scheme = at + len(_AUTH)
    token = scheme + len(_SCHEME)
    twice = message.find(_AUTH, scheme) >= 0
    if at < 0 or twice or message[scheme:token].lower() != _SCHEME:
        return Denied("Invalid OAUTHBEARER message: it has no bearer token")
    # No copy but this one: a stranger may cost little memory (tests/fuzz/strangers).
    return name, message[token : message.index(_SEPARATOR, token)].strip(b" ")
