"""The client's side of SASL that SCRAM's own tests do not have."""

import pytest

from wire.client_settings import Mechanism
from wire.sasl_client import Bearer, SaslError, exchange_of

NONCE = b"nonce"


def test_plain_is_one_message() -> None:
    talk = exchange_of(Mechanism.PLAIN, "ann", "pass, ü", "", NONCE)
    assert talk.start() == b"\0ann\0pass, \xc3\xbc"
    assert talk.answer(b"") is None


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
def test_scram_begins_with_its_nonce(mechanism: Mechanism) -> None:
    assert exchange_of(mechanism, "a,b", "p", "", NONCE).start() == b"n,,n=a=2Cb,r=nonce"


def test_a_token_as_the_rfc_writes_it() -> None:
    talk = exchange_of(Mechanism.OAUTHBEARER, "", "", "abc.def", NONCE)
    assert talk.start() == b"n,,\x01auth=Bearer abc.def\x01\x01"
    assert talk.answer(b"") is None


def test_a_broker_that_does_not_believe_it_gets_one_more_byte() -> None:
    talk = Bearer("abc")
    assert talk.answer(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="does not believe"):
        talk.answer(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "\u00e4", "x" * 40_000])
def test_what_can_be_no_token(token: str) -> None:
    with pytest.raises(SaslError, match="a token has") as told:
        Bearer(token)
    assert not token or token not in str(told.value)
