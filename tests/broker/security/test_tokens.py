"""Access tokens: who is proved by one, and everything that proves nobody."""

import hmac
import json
from typing import Any

import attrs
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import OKPAlgorithm

from broker.security.token_keys import KeysError, parse_key_set
from broker.security.tokens import (
    LIFETIME_S_MAX,
    TOKEN_BYTES_MAX,
    TokenError,
    UnknownKey,
    Whom,
    check,
    read_header,
)
from tests.broker.security.tokens_of import (
    CLAIMS,
    EC_KEY,
    KEY_SET,
    NOW_S,
    OTHER_KEY,
    RSA_KEY,
    RULES,
    forged,
    jwk_of,
    key_set,
    token,
)


def prove(data: bytes, rules: Any = RULES, keys: Any = KEY_SET, now_s: float = NOW_S) -> Whom:
    return check(read_header(data, keys, rules), rules, now_s)


def refusal(data: bytes, **how: Any) -> str:
    with pytest.raises(TokenError) as caught:
        prove(data, **how)
    assert caught.value.status in ("invalid_token", "insufficient_scope")
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        token(),
        token(algorithm="PS256"),
        token(key=EC_KEY, kid="ec", algorithm="ES256"),
        token(key=EC_KEY, kid=None, algorithm="ES256"),
        token(aud=["another", "bus"], nbf=NOW_S, iat=NOW_S - 5),
        token(exp=NOW_S + 600.5),
    ],
)
def test_a_right_token_proves_its_user_until_it_ends(data: bytes) -> None:
    whom = prove(data)
    assert whom.name == "alice"
    assert 600 <= whom.expires_s - NOW_S <= 601


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": None}, "another issuer"),
        ({"iss": "https://login.example.com/"}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "bus2"}, "another audience"),
        ({"aud": ["other", 7, None]}, "another audience"),
        ({"aud": {"bus": 1}}, "another audience"),
        ({"exp": None}, "no end"),
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"sub": None}, "no name"),
        ({"sub": ""}, "no name"),
        ({"sub": "a\nb"}, "no name"),
        ({"sub": "a" * 300}, "no name"),
    ],
)
def test_claims_that_prove_nobody(claims: dict[str, Any], why: str) -> None:
    assert why in refusal(token(**claims))


@pytest.mark.parametrize(
    "exp", [True, "1", [1], {}, -1, 1 << 60, 1e300, float("nan"), float("inf")]
)
def test_an_end_that_is_no_time_is_none(exp: Any) -> None:
    """PyJWT would not write all of them, so they are signed by hand."""
    from jwt.algorithms import get_default_algorithms

    data = forged({"alg": "RS256", "kid": "rsa"}, CLAIMS | {"exp": exp}, b"")[:-1]
    signature = get_default_algorithms()["RS256"].sign(data, RSA_KEY)
    assert "exp of the token" in refusal(data + b"." + forged(signature, b"", b"").split(b".")[0])


def test_clocks_may_differ_by_as_much_as_is_configured() -> None:
    ended = prove(token(exp=NOW_S - 29, nbf=NOW_S + 30, iat=NOW_S + 30))
    assert ended.expires_s == NOW_S + 1, "the session lasts as long as the token is believed"
    strict = attrs.evolve(RULES, clock_skew_s=0)
    assert "expired" in refusal(token(exp=NOW_S), rules=strict)
    assert prove(token(exp=NOW_S + 1), strict).expires_s == NOW_S + 1


def test_an_endless_token_has_a_session_of_a_year() -> None:
    assert prove(token(exp=(1 << 60) - 1)).expires_s == NOW_S + LIFETIME_S_MAX


def test_scopes_and_the_claim_of_the_name_are_configured() -> None:
    rules = attrs.evolve(RULES, scopes=("bus", "write"), principal_claim="email")
    assert prove(token(scope="write other bus", email="a@b"), rules).name == "a@b"
    assert prove(token(scope=["write", "bus"], email="a@b"), rules).name == "a@b"
    for scope in (None, "bus", "bus,write", ["bus"], 7):
        with pytest.raises(TokenError) as caught:
            prove(token(scope=scope, email="a@b"), rules)
        assert caught.value.status == "insufficient_scope"


def test_another_key_another_signature_or_another_text() -> None:
    assert "signature" in refusal(token(key=OTHER_KEY))
    head, claims, signature = token().split(b".")
    other = token(sub="mallory").split(b".")[1]
    assert "signature" in refusal(b".".join((head, other, signature)))
    for bad in (signature[:-4], signature[:4], b"AAAA"):
        assert "signature" in refusal(b".".join((head, claims, bad)))
    elliptic = token(key=EC_KEY, kid="ec", algorithm="ES256").split(b".")
    assert "signature" in refusal(b".".join((*elliptic[:2], b"A" * 86)))


def test_a_token_cannot_choose_what_its_key_is_used_for() -> None:
    """`alg` confusion: no algorithm at all, the public key as a secret, or a key of another
    type."""
    for name in ("none", "None", "NONE", "", "HS256", "RS384", "EdDSA", None, ["RS256"], 7):
        assert "not allowed" in refusal(forged({"alg": name, "kid": "rsa"}))
    assert refusal(b".".join((forged({"alg": "none"}).rsplit(b".", 1)[0], b"")))
    pem = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = forged({"alg": "HS256", "kid": "rsa"}).rsplit(b".", 1)[0]
    secret = hmac.digest(pem, signed, "sha256")
    assert "not allowed" in refusal(signed + b"." + forged(secret).split(b".")[0])
    with pytest.raises(UnknownKey):
        prove(forged({"alg": "ES256", "kid": "rsa"}))
    with pytest.raises(UnknownKey):
        prove(forged({"alg": "RS256", "kid": "ec"}))


def test_keys_that_are_not_known() -> None:
    for kid in ("other", "", "rsa "):
        with pytest.raises(UnknownKey):
            prove(token(kid=kid))
    with pytest.raises(UnknownKey):
        prove(token(), keys=None)
    two = parse_key_set(key_set(jwk_of(RSA_KEY, "a"), jwk_of(OTHER_KEY, "b")))
    with pytest.raises(UnknownKey):
        prove(token(kid=None), keys=two)
    assert "not text" in refusal(forged({"alg": "RS256", "kid": 7}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"..",
        b"a.b",
        b"a.b.c.d",
        b"a b.c.d",
        token() + b"=",
        b"\xff" * 100,
        forged([]),
        forged(b"{"),
        forged(b"[" * 700),
        forged({"alg": "RS256", "kid": "rsa", "crit": ["exp"]}),
        forged({"alg": "RS256", "kid": "rsa", "typ": "id+jwt"}),
        forged({"alg": "RS256", "kid": "rsa", "typ": 7}),
        forged({"alg": "RS256", "kid": "rsa", "x": "y" * 2_000}),
        forged({"alg": "RS256", "kid": "rsa"}, {"x": "y" * TOKEN_BYTES_MAX}),
        b"A" * 1_000 + b"." + b"A" * 5 + b".A",
    ],
)
def test_what_is_no_token_costs_nothing_and_proves_nobody(data: bytes) -> None:
    with pytest.raises(TokenError):
        read_header(data, KEY_SET, RULES)


@given(st.binary(max_size=300) | st.text(alphabet="ab.-_{}[]=A1", max_size=300).map(str.encode))
@settings(max_examples=200, deadline=None)
def test_garbage_is_refused_in_words(data: bytes) -> None:
    for one in (data, token()[:-20] + data, data + b"." + token()):
        refusal(one)


# -- key sets -------------------------------------------------------------------------------------


def test_keys_are_taken_for_what_they_are_for() -> None:
    ed = ed25519.Ed25519PrivateKey.generate()
    okp: dict[str, Any] = OKPAlgorithm.to_jwk(ed.public_key(), as_dict=True)
    found = parse_key_set(
        key_set(
            jwk_of(RSA_KEY, "any"),
            jwk_of(RSA_KEY, "one", alg="PS256", use="sig"),
            jwk_of(OTHER_KEY, "encrypts", use="enc"),
            jwk_of(EC_KEY, "ec"),
            okp | {"kid": "ed"},
        )
    )
    assert {one.kid: sorted(one.algorithms) for one in found.keys} == {
        "any": ["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"],
        "one": ["PS256"],
        "ec": ["ES256"],
        "ed": ["EdDSA"],
    }
    assert "public" not in repr(found.keys[0])
    rules = attrs.evolve(RULES, algorithms=("EdDSA",))
    assert prove(token(key=ed, kid="ed", algorithm="EdDSA"), rules, found).name == "alice"


def test_keys_that_would_make_a_signature_worth_little_are_left_out() -> None:
    small = rsa.generate_private_key(65_537, 1_024)
    private = json.loads(json.dumps(jwk_of(RSA_KEY, "p") | {"d": "AQAB"}))
    found = parse_key_set(
        key_set(
            jwk_of(EC_KEY, "ec"),
            jwk_of(small, "small"),
            {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
            private,
            jwk_of(ec.generate_private_key(ec.SECP256K1()), "k1", crv="secp256k1"),
            jwk_of(RSA_KEY, "ec"),
            jwk_of(RSA_KEY, "lies", alg="HS256"),
            {"kty": "RSA", "n": "!", "e": "AQAB"},
            jwk_of(RSA_KEY, "odd", key_ops=7),
        )
    )
    assert [one.kid for one in found.keys] == ["ec"]
    assert len(found.left_out) == 8
    assert "1024 bits" in found.left_out[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [7]}',
        b"[" * 100_000,
        b" " * 300_000,
        key_set(*[{"kty": "oct", "k": "AAAA"}] * 65),
        key_set({"kty": "oct", "k": "AAAA"}),
        key_set({"kty": "RSA", "kid": 7, "n": "AQAB", "e": "AQAB"}),
    ],
)
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(KeysError):
        parse_key_set(data)
