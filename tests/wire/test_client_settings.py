"""Kafka's names for security, librdkafka's and Java's: what is not understood is refused."""

from collections.abc import Mapping

import pytest

from wire.client_settings import (
    Mechanism,
    Protocol,
    SecuritySettings,
    SettingError,
    security_settings,
)

SECRET = "s3cr3t"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
USER = {"sasl.username": "ann", "sasl.password": SECRET}
TLS = {"security.protocol": "SSL"}
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
TOKEN = "sasl.oauthbearer.token.endpoint.url"
LOGIN = "org.apache.kafka.common.security.oauthbearer"


def test_nothing_means_nothing() -> None:
    assert security_settings({"bootstrap.servers": "h:1", "client.id": "x"}) == SecuritySettings()


def test_librdkafkas_names() -> None:
    found = security_settings(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            **USER,
            "ssl.ca.location": "ca.pem",
            "enable.ssl.certificate.verification": "true",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert (found.protocol, found.mechanism) == (Protocol.SASL_SSL, Mechanism.SCRAM_SHA_256)
    assert (found.username, found.password, found.ca_location) == ("ann", SECRET, "ca.pem")
    assert not found.check_hostname


def test_a_file_of_javas_tools() -> None:
    found = security_settings(
        {
            **SASL,
            "sasl.jaas.config": f'x.ScramLoginModule required username="a" password="{SECRET}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/us.pem",
            "ssl.key.password": SECRET,
            "ssl.protocol": "TLSv1.3",
            "ssl.enabled.protocols": "TLSv1.3,TLSv1.2",
            "sasl.login.refresh.window.factor": "0.8",
        }
    )
    assert (found.ca_location, found.certificate_location) == ("/ca.pem", "/us.pem")
    assert found.tls_versions == ("TLSv1.2", "TLSv1.3")
    assert (found.username, found.password) == ("a", SECRET)
    assert SECRET not in repr(found)


def test_a_token_in_a_file_as_javas_tools_have_it() -> None:
    found = security_settings(
        {
            **BEARER,
            TOKEN: "file:///run/token",
            "sasl.jaas.config": f"{LOGIN}.OAuthBearerLoginModule required ;",
            "sasl.login.callback.handler.class": f"{LOGIN}.secured.OAuthBearerLoginCallbackHandler",
        }
    )
    assert (found.mechanism, found.token_location) == (Mechanism.OAUTHBEARER, "/run/token")
    assert security_settings(BEARER, token_elsewhere=True).token_location is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({**SASL, **USER, "sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported"),
        ({**SASL, **USER, "sasl.mechanisms": "PLAIN"}, "sasl.mechanisms differ"),
        ({**SASL, "sasl.username": "ann", "sasl.password": ""}, "are missing"),
        ({**SASL, "sasl.username": "a\0", "sasl.password": SECRET}, "zero byte"),
        ({**SASL, **USER, "sasl.pasword": SECRET}, "sasl.pasword: is not supported"),
        ({**SASL, **USER, TOKEN: "file:///t"}, "needs sasl.mechanism=OAUTHBEARER"),
        ({**SASL, **USER, "sasl.kerberos.service.name": "k"}, "no Kerberos"),
        ({**SASL, **USER, "sasl.client.callback.handler.class": "x.Y"}, "a class of Java's"),
        (BEARER, "token.endpoint.url: is missing"),
        ({**BEARER, TOKEN: "https://idp/token"}, "only a file can be read"),
        ({**BEARER, TOKEN: "file:///t", **USER}, "no effect with OAUTHBEARER"),
        ({**BEARER, "sasl.jaas.config": "OAuthBearerLoginModule required a=b;"}, "not supported"),
        ({**TLS, "ssl.truststore.location": "t.jks"}, "a Java key store unless"),
        ({**TLS, "ssl.truststore.type": "JKS"}, "'JKS' cannot be read by Python"),
        ({**TLS, "ssl.keystore.type": "PKCS12"}, "'PKCS12' cannot be read"),
        ({**TLS, "ssl.truststore.password": SECRET}, "files in PEM have none"),
        ({**TLS, "ssl.keystore.key": SECRET}, "ssl.keystore.type=PEM"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1"}, "'TLSv1' is not supported"),
        ({**TLS, "enable.ssl.certificate.verification": "false"}, "can only be true"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca"}, "no effect with"),
        ({"sasl.mechanism": "PLAIN", **USER}, "no effect with security.protocol=PLAINTEXT"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Mapping[str, str], told: str) -> None:
    with pytest.raises(SettingError, match=told) as caught:
        security_settings(options)
    assert SECRET not in str(caught.value) + repr(caught.value)
