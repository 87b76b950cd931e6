"""`[oauth]` and mechanisms: what is half-finished is refused with the cure."""

from pathlib import Path

import pytest

from runtime.authentication import authentication
from runtime.config.config import ConfigError
from tests.broker.security.tokens_of import KEYS
from tests.runtime.config.test_listeners import TLS, listener, read, refusal
from tests.runtime.doubles import Recorder

SECURE = listener("CLIENTS", "127.0.0.1:9094", "sasl_ssl")
PLAIN = listener("CLIENTS", "127.0.0.1:9094", "sasl_plaintext")
MUTUAL = listener("CLIENTS", "127.0.0.1:9094", "sasl_ssl", certificates="optional")
WHOLE = 'jwks_file = "k"\nissuer = "https://i"\naudience = ["bus"]\n'


def security(*mechanisms: str) -> str:
    return f"[security]\nsasl_mechanisms = {list(mechanisms)}\n"


def test_a_whole_configuration_is_read_back(tmp_path: Path) -> None:
    config = read(tmp_path, SECURE, TLS, security("OAUTHBEARER"), "[oauth]\n" + WHOLE)
    assert config.oauth.audience == ("bus",)
    assert config.oauth.principal_claim == "sub"
    url = WHOLE.replace('jwks_file = "k"', 'jwks_url = "https://login.example.com/keys"')
    config = read(tmp_path, SECURE, TLS, security("OAUTHBEARER"), "[oauth]\n" + url)
    assert config.oauth.jwks_file is None
    assert "jwks_url" in config.describe()


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ("", "oauth.jwks_file"),
        ('issuer = "i"\naudience = "a"', "no key, no trust"),
        ('jwks_file = "k"\naudience = "a"', "oauth.issuer"),
        ('jwks_file = "k"\nissuer = "i"', "oauth.audience"),
        (WHOLE + 'algorithms = ["none"]', "public key"),
        (WHOLE + 'algorithms = ["HS256", "RS256"]', "public key"),
        (WHOLE + "algorithms = []", "no token could be signed"),
        (WHOLE + "clock_skew_s = 301", "expected 0 to 300"),
        (WHOLE + 'jwks_url = "https://x/"', "set one of both"),
        (WHOLE + 'jwks_authorities = "a"', "https"),
        (WHOLE.replace('jwks_file = "k"', 'jwks_url = "http://x/"'), "use https"),
        (WHOLE + 'principal_claim = ""', "name a claim"),
        (WHOLE + 'audiences = "x"', "did you mean oauth.audience"),
    ],
)
def test_what_is_half_finished(tmp_path: Path, parts: str, why: str) -> None:
    said = refusal(tmp_path, SECURE, TLS, security("OAUTHBEARER"), "[oauth]\n" + parts)
    assert why in said


def test_tokens_without_a_use_or_in_the_clear(tmp_path: Path) -> None:
    said = refusal(tmp_path, SECURE, TLS, security("SCRAM-SHA-512"), "[oauth]\n" + WHOLE)
    assert "no OAUTHBEARER" in said
    said = refusal(tmp_path, PLAIN, security("OAUTHBEARER"), "[oauth]\n" + WHOLE)
    assert "oauth.without_tls" in said
    both = security("OAUTHBEARER", "SCRAM-SHA-512")
    assert "oauth.without_tls" in refusal(tmp_path, PLAIN, both, "[oauth]\n" + WHOLE)
    read(tmp_path, PLAIN, both, "[oauth]\nwithout_tls = true\n" + WHOLE)


def test_external_needs_certificates(tmp_path: Path) -> None:
    for one in (SECURE, PLAIN):
        assert "EXTERNAL needs" in refusal(tmp_path, one, TLS, security("EXTERNAL"))
        both = security("EXTERNAL", "SCRAM-SHA-512")
        assert "EXTERNAL, which needs" in refusal(tmp_path, one, TLS, both)
    read(tmp_path, MUTUAL, TLS, security("EXTERNAL"))
    assert "Kerberos" in refusal(tmp_path, MUTUAL, TLS, security("GSSAPI"))


def test_revoked_certificates_need_authorities(tmp_path: Path) -> None:
    said = refusal(tmp_path, SECURE, '[tls]\ncertificate = "c"\nkey = "k"\nrevoked = "r"\n')
    assert "tls.client_authorities" in said


def test_a_file_of_keys_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    section = "[oauth]\n" + WHOLE.replace('"k"', f'"{path}"')
    config = read(tmp_path, SECURE, TLS, security("OAUTHBEARER"), section)

    def start() -> object:
        journal = Recorder().journal
        return authentication(config, None, lambda: b"id", lambda: None, journal)  # type: ignore[arg-type, return-value]

    with pytest.raises(ConfigError, match=r"oauth\.jwks_file"):
        start()
    path.write_bytes(b'{"keys": []}')
    with pytest.raises(ConfigError, match="no key in it"):
        start()
    path.write_bytes(KEYS)
    assert start() is not None
