"""Files with Kafka's names for security: what is not understood is refused, not ignored."""

import ssl
from pathlib import Path

import pytest
import trio

from evenkeel import ClientConfig
from evenkeel.errors import ConfigurationError
from evenkeel.properties import read, security_of, written
from evenkeel.sasl import Sasl
from tests.certs import Certs
from wire.sasl_client import exchange_of


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    made = Certs.new(tmp_path_factory.mktemp("certificates"))
    made.client("alice")
    made.client("bob")
    return made


def of(certs: Certs, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(certs.trusted),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_a_file_is_read_as_java_does(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# whom to believe\n! and so\n\nsecurity.protocol = ssl\nssl.ca.location=a=b\n")
    assert read(path) == {"security.protocol": "ssl", "ssl.ca.location": "a=b"}


def test_nothing_means_no_tls_and_other_settings_are_left_alone() -> None:
    assert security_of({}) == (None, None)
    plain = {"bootstrap.servers": "h:9092", "security.protocol": "PLAINTEXT"}
    assert security_of(plain) == (None, None)


def test_a_context_is_made_that_verifies_names_and_shows_a_certificate(certs: Certs) -> None:
    folder = certs.folder
    shown = {
        "ssl.certificate.location": str(folder / "alice.crt"),
        "ssl.key.location": str(folder / "alice.key"),
    }
    config = ClientConfig.from_properties({**of(certs), **shown}, client_id="c")
    assert config.client_id == "c"
    assert config.tls is not None
    assert config.tls.check_hostname
    assert config.tls.verify_mode is ssl.CERT_REQUIRED
    unnamed, _ = security_of({**of(certs), "ssl.endpoint.identification.algorithm": ""})
    assert unnamed is not None
    assert not unnamed.check_hostname
    assert unnamed.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"sasl.mechanism": "PLAIN"}, "has no effect with security.protocol=PLAINTEXT"),
        ({"security.protocol": "tls"}, "'tls' is not known"),
        ({"ssl.truststore.location": "x.jks"}, "is a Java key store unless"),
        ({"ssl.unknown": "x"}, "ssl.unknown is not supported"),
        ({"ssl.ca.location": "ca.pem"}, "no effect with security.protocol=PLAINTEXT"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/none"}, "no such file"),
        ({"security.protocol": "ssl", "ssl.key.location": "k"}, "without a certificate"),
    ],
)
def test_what_is_wrong_is_refused(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        security_of(properties)


def test_a_certificate_without_its_key_is_refused(certs: Certs) -> None:
    folder = certs.folder
    wrong = {
        "ssl.certificate.location": str(folder / "alice.crt"),
        "ssl.key.location": str(folder / "bob.key"),
    }
    with pytest.raises(ConfigurationError, match="mismatch"):
        security_of({**of(certs), **wrong})


def test_a_line_that_is_no_setting_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("hunter2\n")
    with pytest.raises(ConfigurationError) as caught:
        read(path)
    assert "line 1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


JAVA = r"""
# a comment \
security.protocol: SASL_SSL
sasl.mechanism SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="ann" \
    password="a\\"b";
"""


def test_lines_are_continued_and_escaped_as_in_java(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(JAVA)
    settings = read(path)
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    _, sasl = security_of({**settings, "security.protocol": "SASL_PLAINTEXT"})
    assert sasl is not None
    assert (sasl.username, sasl.password) == ("ann", 'a"b')
    assert 'a"b' not in repr(sasl)


@pytest.mark.parametrize(
    "value", ["plain", " a b ", "back\\slash", "=:#!", "tab\tand\nline", "\u00fc", "", "\\", "a\\ "]
)
def test_what_is_written_is_read_again(value: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(written({"sasl.password": value, "x": "y"}))
    assert read(path) == {"sasl.password": value, "x": "y"}


def test_a_token_comes_from_its_file_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    bearer = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{path}",
    }
    sasl = ClientConfig.from_properties(bearer).sasl
    assert sasl is not None
    assert trio.run(sasl.current_token) == "first"
    path.write_text("second")
    assert trio.run(sasl.current_token) == "second"
    path.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        trio.run(sasl.current_token)


def test_a_character_beyond_16_bits_is_a_pair_in_java(tmp_path: Path) -> None:
    """Such a password was none that can be sent."""
    path = tmp_path / "java.properties"
    path.write_text("sasl.password=pw\\ud83d\\ude00\n")
    assert read(path) == {"sasl.password": "pw\U0001f600"}
    path.write_text("client.id=x\nsasl.password=hunter2\\ud83d\n")
    with pytest.raises(ConfigurationError, match="line 2: half of a character") as caught:
        read(path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_what_is_no_text_is_refused_before_it_is_sent(mechanism: str) -> None:
    for name, password in (("a\ud83d", "hunter2"), ("alice", "hunter2\ud83d")):
        with pytest.raises(ConfigurationError, match="half of a character") as caught:
            Sasl(mechanism=mechanism, username=name, password=password)
        assert "hunter2" not in str(caught.value)
    odd = Sasl(mechanism=mechanism, username="alice", password="\udcff")  # a byte of the terminal
    talk = exchange_of(odd.mechanism, odd.username, odd.password, "", b"nonce")
    talk.start()
    talk.answer(b"r=nonceX,s=c2FsdA==,i=4096")
