"""How brokers are trusted and how we say who we are, from Kafka's option names.

    security.protocol                       PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    ssl.ca.location                         authorities to trust, in PEM, and not the system's
    ssl.certificate.location                our certificate, with its chain, in PEM
    ssl.key.location, ssl.key.password      its key, if it is not in the same file
    ssl.endpoint.identification.algorithm   https (the default), or empty: any host name will do
    sasl.mechanism                          PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    sasl.username, sasl.password            or sasl.jaas.config, as Kafka's Java clients write it

Passwords are in no `repr`, no error and no log. With SASL_PLAINTEXT they cross the network in the
clear (PLAIN), or as a proof that can be attacked offline (SCRAM): for trusted networks only.
"""

import re
import ssl
from collections.abc import Mapping
from enum import Enum
from typing import Final, NoReturn

import attrs

from pyspark_evenkeel.errors import ConfigurationError


class Protocol(Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class Mechanism(Enum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        assert self is not Mechanism.PLAIN
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"


SECURITY_OPTIONS: Final = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
    }
)
"""All options that `security_settings` understands."""
PREFIXES: Final = ("security.", "ssl.", "sasl.")

_JAVA_STORES: Final = ("ssl.truststore.", "ssl.keystore.")
_LOGIN_MODULES: Final = {
    "PlainLoginModule": (Mechanism.PLAIN,),
    "ScramLoginModule": (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
}
_JAAS: Final = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.DOTALL
)
_JAAS_OPTION: Final = re.compile(
    r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""", re.DOTALL
)


@attrs.frozen(kw_only=True)
class SecuritySettings:
    """The options, checked. Without any: no TLS, no authentication."""

    protocol: Protocol = Protocol.PLAINTEXT
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.protocol.has_sasl:
            if self.mechanism is None:
                _refuse("sasl.mechanism", "is missing", f"one of {_names(Mechanism)}")
            if not self.username or self.password is None:
                _refuse("sasl.username and sasl.password", "are missing", "or sasl.jaas.config")
        elif self.mechanism is not None or self.username is not None:
            _refuse(
                "sasl.*",
                f"has no effect with security.protocol={self.protocol.value}",
                "SASL_SSL or SASL_PLAINTEXT",
            )
        if not self.protocol.has_tls and (self.ca_location or self.certificate_location):
            _refuse(
                "ssl.*",
                f"has no effect with security.protocol={self.protocol.value}",
                "SSL or SASL_SSL",
            )
        if self.key_location and not self.certificate_location:
            _refuse(
                "ssl.key.location", "is given without a certificate", "ssl.certificate.location"
            )

    def tls(self) -> ssl.SSLContext | None:
        """The context for TLS connections; None without TLS.

        Raises:
            ConfigurationError: if a file is missing, or is not what it should be.
        """
        if not self.protocol.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
        except (OSError, ssl.SSLError) as error:
            _refuse(f"ssl.ca.location {self.ca_location}", _why(error), "a PEM file")
        context.check_hostname = self.check_hostname
        if self.certificate_location is not None:
            try:
                context.load_cert_chain(
                    self.certificate_location,
                    self.key_location,
                    # always given: otherwise OpenSSL would ask for it on the terminal
                    password=self.key_password or "",
                )
            except (OSError, ssl.SSLError) as error:
                _refuse(
                    f"ssl.certificate.location {self.certificate_location} with its key",
                    _why(error),
                    "PEM files that belong together, and the right ssl.key.password",
                )
        return context


def security_settings(options: Mapping[str, str]) -> SecuritySettings:
    """Read Kafka's options, without the prefix `kafka.`; case does not matter in their names.

    Options that have nothing to do with security are ignored here.

    Raises:
        ConfigurationError: if options are unknown, contradictory or missing.
    """
    given = {key.lower(): text for key, text in options.items()}
    given = {key: text for key, text in given.items() if key.startswith(PREFIXES)}
    for key in sorted(given.keys() - SECURITY_OPTIONS):
        if key.startswith(_JAVA_STORES):
            _refuse(
                key,
                "is a Java key store, which Python cannot read",
                "PEM files by ssl.ca.location, ssl.certificate.location, ssl.key.location",
            )
        _refuse(key, "is not supported", ", ".join(sorted(SECURITY_OPTIONS)))
    mechanism = _mechanism(given.get("sasl.mechanism"))
    username, password = given.get("sasl.username"), given.get("sasl.password")
    jaas = given.get("sasl.jaas.config")
    if jaas is not None:
        if username is not None or password is not None:
            _refuse("sasl.jaas.config", "is given beside sasl.username", "one of the two")
        username, password = _jaas(jaas, mechanism)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        _refuse("ssl.endpoint.identification.algorithm", f"'{algorithm}'", "https, or empty")
    return SecuritySettings(
        protocol=_protocol(given.get("security.protocol", "PLAINTEXT")),
        ca_location=given.get("ssl.ca.location"),
        certificate_location=given.get("ssl.certificate.location"),
        key_location=given.get("ssl.key.location"),
        key_password=given.get("ssl.key.password"),
        check_hostname=algorithm == "https",
        mechanism=mechanism,
        username=username,
        password=password,
    )


def _why(error: OSError) -> str:
    """OpenSSL's description, or the system's."""
    return error.strerror or str(error) or type(error).__name__


def _names(values: type[Enum]) -> str:
    return ", ".join(one.value for one in values)


def _refuse(option: str, what: str, accepted: str) -> NoReturn:
    raise ConfigurationError(f"option {option}: {what}", advice=f"accepted: {accepted}")


def _protocol(text: str) -> Protocol:
    try:
        return Protocol(text.upper())
    except ValueError:
        _refuse("security.protocol", f"'{text}' is not known", _names(Protocol))


def _mechanism(text: str | None) -> Mechanism | None:
    if text is None:
        return None
    try:
        return Mechanism(text.upper())
    except ValueError:
        _refuse("sasl.mechanism", f"'{text}' is not supported", _names(Mechanism))


def _jaas(text: str, mechanism: Mechanism | None) -> tuple[str, str]:
    """The user and password in `...PlainLoginModule required username="u" password="p";`.

    Errors quote nothing of it.
    """
    whole = _JAAS.fullmatch(text)
    advice = '...PlainLoginModule required username="..." password="...";'
    if whole is None:
        _refuse("sasl.jaas.config", "cannot be read", advice)
    module, rest = whole[1].rpartition(".")[2], whole[2]
    if module not in _LOGIN_MODULES:
        _refuse("sasl.jaas.config", f"{module} is not supported", ", ".join(_LOGIN_MODULES))
    if mechanism is not None and mechanism not in _LOGIN_MODULES[module]:
        _refuse("sasl.jaas.config", f"{module} does not go with {mechanism.value}", "the other")
    found: dict[str, str] = {}
    at = 0
    while rest[at:].strip():
        option = _JAAS_OPTION.match(rest, at)
        if option is None:
            _refuse("sasl.jaas.config", "cannot be read", advice)
        quoted = option[2] if option[2] is not None else option[3]
        found[option[1]] = option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = option.end()
    if "username" not in found or "password" not in found:
        _refuse("sasl.jaas.config", "has no username or no password", advice)
    return found["username"], found["password"]
