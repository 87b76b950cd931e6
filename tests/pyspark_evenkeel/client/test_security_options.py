"""Security options, and secrets that stay secret."""

import pickle
from collections.abc import Mapping

import pytest

from pyspark_evenkeel.client.security import (
    Mechanism,
    Protocol,
    SecuritySettings,
    security_settings,
    tls_context,
)
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    ConfigurationError,
    DataLossError,
    EvenkeelSparkError,
    RefusedError,
)
from wire.error_codes import ErrorCode

SECRET = "s3cr3t"
MODULES = "org.apache.kafka.common.security"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def jaas(text: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": text}


def test_without_options_nothing_is_asked_for() -> None:
    assert security_settings({"group.id": "x"}) == SecuritySettings()
    assert SecuritySettings().protocol is Protocol.PLAINTEXT
    assert tls_context(SecuritySettings()) is None


def test_options_are_read_whatever_their_case() -> None:
    found = security_settings(
        {
            "Security.Protocol": "sasl_ssl",
            "SASL.mechanism": "scram-sha-512",
            "sasl.username": "ann",
            "sasl.password": SECRET,
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (found.protocol, found.mechanism) == (Protocol.SASL_SSL, Mechanism.SCRAM_SHA_512)
    assert (found.username, found.password) == ("ann", SECRET)
    assert not found.check_hostname


@pytest.mark.parametrize(
    ("text", "mechanism", "username", "password"),
    [
        (
            f'{MODULES}.plain.PlainLoginModule required username="ann" password="{SECRET}";',
            "PLAIN",
            "ann",
            SECRET,
        ),
        (
            f"\n{MODULES}.scram.ScramLoginModule required\n username=ann\n password='a;\"b' ;\n",
            "SCRAM-SHA-256",
            "ann",
            'a;"b',
        ),
        ('ScramLoginModule required password="\\"\\\\" username="a";', "SCRAM-SHA-512", "a", '"\\'),
    ],
)
def test_jaas_is_read_as_java_does(text: str, mechanism: str, username: str, password: str) -> None:
    found = security_settings(jaas(text, mechanism))
    assert (found.username, found.password) == (username, password)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"security.protocol": "TLS"}, "'TLS' is not known .accepted: PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: is missing"),
        (SASL, "sasl.username and sasl.password: are missing"),
        (SASL | {"sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported .accepted: PLAIN, SCRAM"),
        ({"sasl.username": "ann"}, "has no effect with security.protocol=PLAINTEXT"),
        ({"ssl.ca.location": "ca.pem"}, "has no effect with security.protocol=PLAINTEXT"),
        ({"security.protocol": "SSL", "ssl.key.location": "k"}, "given without a certificate"),
        ({"ssl.truststore.location": "t.jks"}, "a Java key store.* PEM files"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites: is not supported"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "accepted: https, or empty"),
        (jaas("nonsense"), "sasl.jaas.config: cannot be read"),
        (jaas(f"PlainLoginModule required username=ann password={SECRET} ?;"), "cannot be read"),
        (jaas(f"KerberosLoginModule required password={SECRET};"), "is not supported"),
        (jaas(f"ScramLoginModule required password={SECRET};"), "does not go with PLAIN"),
        (jaas(f"PlainLoginModule required password={SECRET};"), "no username or no password"),
        (jaas("PlainLoginModule required a=b;") | {"sasl.username": "ann"}, "beside sasl.username"),
    ],
)
def test_what_makes_no_sense_is_told(options: Mapping[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        security_settings(options)
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_secrets_are_not_shown() -> None:
    settings = security_settings(
        SASL | {"sasl.username": "ann", "sasl.password": SECRET, "ssl.key.password": SECRET}
    )
    for one in (settings, ClusterSettings(bootstrap="a:1", security=settings)):
        assert SECRET not in repr(one) + str(one) + f"{one}"
        assert pickle.loads(pickle.dumps(one)) == one
    assert hash(settings) == hash(pickle.loads(pickle.dumps(settings)))


def test_addresses_that_are_none_are_told() -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap.servers: 'a:b' is not an address"):
        ClusterSettings(bootstrap="a:b")


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("what", why="why", advice="advice"),
        RefusedError("what", code=ErrorCode.NOT_LEADER_OR_FOLLOWER, message="gone"),
        RefusedError("what", code=12345),
        DataLossError(("t", 3), 1, 9, 5, 100),
    ],
)
def test_errors_cross_from_workers_to_the_driver(error: EvenkeelSparkError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.__dict__, back.args) == (str(error), error.__dict__, error.args)
