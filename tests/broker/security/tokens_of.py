"""Makes access tokens as an authority would, and as a forger would."""

import base64
import json
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from broker.security.token_keys import KeySet, parse_key_set
from broker.security.tokens import TokenRules

NOW_S: Final = 1_767_225_600
RULES: Final = TokenRules(
    issuer="https://login.example.com",
    audiences=("bus",),
    algorithms=("RS256", "PS256", "ES256"),
)
CLAIMS: Final[dict[str, Any]] = {
    "iss": "https://login.example.com",
    "aud": "bus",
    "sub": "alice",
    "exp": NOW_S + 600,
}
RSA_KEY: Final = rsa.generate_private_key(65_537, 2_048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY: Final = rsa.generate_private_key(65_537, 2_048)


def jwk_of(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    kind = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    found: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    found.pop("key_ops", None)
    return found | ({} if kid is None else {"kid": kid}) | more


def key_set(*jwks: dict[str, Any]) -> bytes:
    return json.dumps({"keys": jwks}).encode()


KEYS: Final = key_set(jwk_of(RSA_KEY, "rsa"), jwk_of(EC_KEY, "ec"))
KEY_SET: Final[KeySet] = parse_key_set(KEYS)


def token(
    *, key: Any = RSA_KEY, kid: str | None = "rsa", algorithm: str = "RS256", **claims: Any
) -> bytes:
    """Claims of None are left out."""
    wanted = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(wanted, key, algorithm=algorithm, headers=headers).encode()


def forged(header: Any, claims: Any = CLAIMS, signature: bytes = b"x" * 256) -> bytes:
    """Of parts that no library would write; they are JSON, or bytes as they are."""
    parts = [
        one if isinstance(one, bytes) else json.dumps(one).encode()
        for one in (header, claims, signature)
    ]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
