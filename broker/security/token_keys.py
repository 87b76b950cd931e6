"""The public keys of whoever signs access tokens: a JSON Web Key Set (RFC 7517), read by PyJWT.

A key is used for the algorithms that fit its type, and for no others: RSA keys for RS* and PS*,
elliptic curves for the ES* of their curve, Ed25519 and Ed448 for EdDSA. So a token cannot choose
that a public key be taken for a secret (`alg` confusion). Keys that would make a signature worth
little are left out, in words: symmetric ones, RSA below 2,048 bits, and sets that hold private
keys.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import attrs

KEY_SET_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 64
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
"""What a signature costs us must not be somebody else's choice."""
RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final[Mapping[str, str]] = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS: Final = (*RSA_ALGORITHMS, *CURVES.values(), "EdDSA")
"""All that may be allowed. There is no `none`, and nothing with a shared secret (HS*)."""


class KeysError(ValueError):
    """What is wrong with a key set, in words for the operator."""


@attrs.frozen
class TokenKey:
    kid: str
    algorithms: frozenset[str]
    public: Any = attrs.field(repr=False)
    """One of cryptography's public keys. Any: their classes have no common one."""

    def signed(self, algorithm: str, signature: bytes, data: memoryview) -> bool:
        """Whether it made this signature. Takes 0.03 to 0.5 ms: not for the event loop."""
        from jwt.algorithms import get_default_algorithms

        verify: Any = get_default_algorithms()[algorithm].verify
        return algorithm in self.algorithms and bool(verify(data, self.public, signature))


@attrs.frozen
class KeySet:
    keys: tuple[TokenKey, ...]
    left_out: tuple[str, ...] = ()
    """Why others of the set are not used."""

    def find(self, kid: str | None, algorithm: str) -> TokenKey | None:
        """The key of this id that fits the algorithm. Without an id: the only one that fits."""
        fitting = [
            one
            for one in self.keys
            if algorithm in one.algorithms and (kid is None or one.kid == kid)
        ]
        return fitting[0] if len(fitting) == 1 else None


class KeysInUse(Protocol):
    """The keys of the authority, as they were read last; runtime.oauth.keys reads them. Everything
    is called on the loop."""

    unknown_total: int
    """Tokens with a key that was not known."""
    read_total: int
    failed_total: int
    complaint: str
    """Why the keys as they are now at their source are not in use; "" if they are."""

    @property
    def current(self) -> KeySet | None: ...

    def missed(self) -> None:
        """A token was signed with a key that is not among them."""

    def hurry(self) -> None:
        """The operator says that they have changed."""

    def tick(self, boot_ns: int) -> None:
        """Call it about once a second."""


def parse_key_set(data: bytes) -> KeySet:
    """
    Raises:
        KeysError: it is no key set, or there is no key in it that can be used.
    """
    if len(data) > KEY_SET_BYTES_MAX:
        raise KeysError(f"more than {KEY_SET_BYTES_MAX} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise KeysError("it is not JSON") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise KeysError('it is not a JSON Web Key Set: expected {"keys": [...]}')
    if len(keys) > KEYS_MAX:
        raise KeysError(f"{len(keys)} keys, at most {KEYS_MAX}")
    taken: list[TokenKey] = []
    left_out: list[str] = []
    for number, jwk in enumerate(keys, 1):
        try:
            taken += _taken(jwk, taken)
        except KeysError as error:
            left_out.append(f"key {number}: {error}")
    if not taken:
        why = "; ".join(left_out[:5]) or "it is empty"
        raise KeysError(f"there is no key in it that can be used ({why})")
    return KeySet(tuple(taken), tuple(left_out))


def _taken(jwk: object, before: list[TokenKey]) -> Iterator[TokenKey]:
    """The key; nothing if it is not for signatures.

    Raises:
        KeysError: why it is not used.
    """
    if not isinstance(jwk, dict):
        raise KeysError("it is not an object")
    uses = jwk.get("key_ops") or ["verify"]
    if not isinstance(uses, list):
        raise KeysError("its key_ops are no array")
    if jwk.get("use", "sig") != "sig" or "verify" not in uses:
        return
    kid = jwk.get("kid", "")
    if not isinstance(kid, str):
        raise KeysError("its kid is not text")
    if "d" in jwk:
        raise KeysError("it is a private key: publish the public one, and make a new pair")
    fitting = _fitting(jwk)
    own = jwk.get("alg")
    if own is not None:
        fitting &= {own} if isinstance(own, str) else set()
    if not fitting:
        raise KeysError("its type and its alg are not those of a public key that we use")
    if kid and any(one.kid == kid for one in before):
        raise KeysError("another one has its kid")
    yield TokenKey(kid, frozenset(fitting), _public(jwk, min(fitting)))


def _fitting(jwk: Mapping[str, Any]) -> set[str]:
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if kind == "RSA":
        return set(RSA_ALGORITHMS)
    if kind == "EC" and isinstance(curve, str) and curve in CURVES:
        return {CURVES[curve]}
    if kind == "OKP" and curve in ("Ed25519", "Ed448"):
        return {"EdDSA"}
    return set()


def _public(jwk: dict[str, Any], algorithm: str) -> Any:  # noqa: ANN401  as TokenKey.public
    from jwt import PyJWK

    try:
        public: Any = PyJWK(jwk, algorithm=algorithm).key
    except Exception:  # noqa: BLE001  whatever a library makes of somebody's numbers
        raise KeysError("it cannot be read") from None
    if algorithm in RSA_ALGORITHMS and not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
        raise KeysError(f"RSA with {public.key_size} bits: {RSA_BITS_MIN} to {RSA_BITS_MAX}")
    return public
