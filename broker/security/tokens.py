"""Access tokens as JSON Web Tokens (RFC 7519, RFC 8725): who signed one, for whom, until when.

First what a stranger may have written: sizes, then a flat header of a few hundred bytes, then the
signature. Only what the authority has signed is parsed further. Keys and signatures are PyJWT's;
claims are compared here, for time is an argument, and nothing that is not signed may cost memory.

Refusals have words for the client and the log: none of them repeats anything of the token.
"""

import binascii
import json
import math
import re
from typing import Any, Final, NamedTuple

import attrs

from balancer.registry.security import user_problem
from broker.security.token_keys import KeySet, TokenKey

TOKEN_BYTES_MAX: Final = 12 * 1024
HEADER_CHARS_MAX: Final = 1_024
NESTED_MAX: Final = 8
"""Objects and arrays in a header: there is one, and perhaps a chain of certificates."""
_TOKEN: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES: Final = ("jwt", "at+jwt", "application/at+jwt", "application/jwt")
LIFETIME_S_MAX: Final = 365 * 86_400


class TokenError(ValueError):
    """Why a token proves nobody. `status` is RFC 7628's (those of RFC 6750, section 3.1)."""

    def __init__(self, why: str, status: str = "invalid_token") -> None:
        super().__init__(why)
        self.status = status


class UnknownKey(TokenError):
    """Signed by a key that we do not have; perhaps it is a new one."""


@attrs.frozen(kw_only=True)
class TokenRules:
    """What a token must say to prove anybody."""

    issuer: str
    audiences: tuple[str, ...]
    """It must be for one of these."""
    algorithms: tuple[str, ...]
    principal_claim: str = "sub"
    scopes: tuple[str, ...] = ()
    """It must have all of these."""
    scope_claim: str = "scope"
    clock_skew_s: int = 30


class Signed(NamedTuple):
    """A token whose header is in order, before the signature is checked."""

    token: memoryview
    signed_bytes: int
    """How much of it the signature is for."""
    payload_at: int
    algorithm: str
    key: TokenKey


class Whom(NamedTuple):
    name: str
    expires_s: float
    """Seconds since 1970. A session ends then."""


def read_header(token: bytes, keys: KeySet | None, rules: TokenRules) -> Signed:
    """Cheap enough for the event loop.

    Raises:
        TokenError: it is refused already.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError(f"a token has at most {TOKEN_BYTES_MAX} bytes")
    if _TOKEN.fullmatch(token) is None:
        raise TokenError("the token is not a signed JSON Web Token")
    dot = token.index(b".")
    if dot > HEADER_CHARS_MAX:
        raise TokenError(f"the header of a token has at most {HEADER_CHARS_MAX} characters")
    header = _object(_decoded(token[:dot]), flat=True)
    if "crit" in header:
        raise TokenError("the token has critical extensions, which are not known here")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenError("the token is of another type than an access token")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise TokenError("the token is signed with an algorithm that is not allowed")
    if kid is not None and not isinstance(kid, str):
        raise TokenError("the key id of the token is not text")
    key = None if keys is None else keys.find(kid, algorithm)
    if key is None:
        raise UnknownKey("the token is signed with a key that is not known here")
    return Signed(memoryview(token), token.rindex(b"."), dot + 1, algorithm, key)


def check(signed: Signed, rules: TokenRules, now_s: float) -> Whom:
    """Whom the token proves. Not for the event loop (`TokenKey.signed`).

    Raises:
        TokenError: nobody.
    """
    token = signed.token
    signature = _decoded(bytes(token[signed.signed_bytes + 1 :]))
    if not signed.key.signed(signed.algorithm, signature, token[: signed.signed_bytes]):
        raise TokenError("the signature of the token is wrong")
    claims = _object(_decoded(bytes(token[signed.payload_at : signed.signed_bytes])), flat=False)
    expires_s = _check_time(claims, rules.clock_skew_s, now_s)
    if claims.get("iss") != rules.issuer:
        raise TokenError("the token is from another issuer")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(one, str) and one in rules.audiences for one in named):
        raise TokenError("the token is for another audience")
    _check_scopes(claims, rules)
    name = claims.get(rules.principal_claim)
    if not isinstance(name, str) or user_problem(name):
        raise TokenError(f"the token has no name in its claim {rules.principal_claim}")
    return Whom(name, expires_s)


def _check_time(claims: dict[str, Any], skew_s: int, now_s: float) -> float:
    """When it expires; with `skew_s` of doubt about the clocks."""
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise TokenError("the token has no end (exp)")
    if now_s >= expires_s + skew_s:
        raise TokenError("the token has expired")
    for name in ("nbf", "iat"):
        since_s = _time(claims, name)
        if since_s is not None and now_s < since_s - skew_s:
            raise TokenError(f"the token is not valid yet ({name})")
    ends_s = expires_s if expires_s > now_s else expires_s + skew_s
    return min(ends_s, now_s + LIFETIME_S_MAX)


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"{name} of the token is not a number")
    if not 0 <= value < 1 << 60 or not math.isfinite(value):
        raise TokenError(f"{name} of the token is not a time")
    return float(value)


def _check_scopes(claims: dict[str, Any], rules: TokenRules) -> None:
    if not rules.scopes:
        return
    found = claims.get(rules.scope_claim)
    has = found.split(" ") if isinstance(found, str) else found
    if not isinstance(has, list) or any(one not in has for one in rules.scopes):
        raise TokenError("the token has not the scope that is needed here", "insufficient_scope")


def _decoded(part: bytes) -> bytes:
    padded = part.translate(_FROM_URL_SAFE) + b"=" * (-len(part) % 4)
    try:
        return binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        raise TokenError("the token is not base64url") from None


_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def _object(data: bytes, *, flat: bool) -> dict[str, Any]:
    if flat and data.count(b"[") + data.count(b"{") > NESTED_MAX:
        raise TokenError("the header of the token has too many parts")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise TokenError("the token holds something that is not JSON") from None
    if not isinstance(found, dict):
        raise TokenError("the token holds something that is not a JSON object")
    return found
