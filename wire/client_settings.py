"""How clients trust brokers and say who they are, by the names that Kafka's files have for it.

    security.protocol                       PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in any case
    ssl.ca.location                         authorities to trust, in PEM, and not the system's
    ssl.certificate.location                our certificate, with its chain, in PEM
    ssl.key.location, ssl.key.password      its key, if it is not in the same file
    ssl.endpoint.identification.algorithm   https (the default), or none or empty: any name will do
    ssl.enabled.protocols                   of TLSv1.2 and TLSv1.3
    sasl.mechanism                          PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    sasl.username, sasl.password            or sasl.jaas.config, as Kafka's Java clients write it
    sasl.oauthbearer.token.endpoint.url     file:///where/the/token/is

Those are librdkafka's names. Java's are read as well: `ssl.truststore.location` with
`ssl.truststore.type=PEM` (or `ssl.truststore.certificates`), and `ssl.keystore.location` with
`ssl.keystore.type=PEM`. What is not understood and may protect something is refused, for whoever
wrote it relies on it; what only tunes a client of Kafka's is left alone. Names that have nothing to
do with security are not looked at.

Passwords are in no `repr` and in no error. With SASL_PLAINTEXT they cross the network in the clear
(PLAIN), or as a proof that can be attacked offline (SCRAM): for trusted networks only.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NoReturn

import attrs

FILE_URL: Final = "file://"


class SettingError(ValueError):
    """A setting that is unknown, wrong or missing: `option` `what`, and what would be accepted."""

    def __init__(self, option: str, what: str, accepted: str = "") -> None:
        super().__init__(f"{option}: {what}" + (f" (accepted: {accepted})" if accepted else ""))
        self.option, self.what, self.accepted = option, what, accepted


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
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def has_password(self) -> bool:
        return self is not Mechanism.OAUTHBEARER


SECURITY_OPTIONS: Final = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.token.endpoint.url",
    }
)
"""All options that decide something here."""
TUNING: Final = (
    "sasl.login.",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "ssl.protocol",
)
"""Of Kafka's own clients: how often they try, and names of what they look at. Nothing depends on
them here."""
NAMES: Final = ", ".join(sorted(SECURITY_OPTIONS))
PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.")
SECRETS: Final = frozenset({"sasl.password", "ssl.key.password", "sasl.jaas.config"})
"""Options whose values are never shown."""

_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
"""Of Kafka: it reads the token from the file or address that is given to it, as we do."""
_LOGIN_MODULES: Final = {
    "PlainLoginModule": (Mechanism.PLAIN,),
    "ScramLoginModule": (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
    "OAuthBearerLoginModule": (Mechanism.OAUTHBEARER,),
}
_NOT_HERE: Final = {
    "ssl.truststore.password": "files in PEM have none: leave it out",
    "ssl.keystore.password": "for a key in PEM it is ssl.key.password",
    "ssl.keystore.key": "a file: ssl.keystore.location with ssl.keystore.type=PEM",
    "ssl.keystore.certificate.chain": "a file: ssl.keystore.location with ssl.keystore.type=PEM",
    "sasl.kerberos.service.name": "another mechanism: there is no Kerberos (GSSAPI) here",
}
_JAAS: Final = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.DOTALL
)
_JAAS_OPTION: Final = re.compile(
    r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""", re.DOTALL
)


@attrs.frozen(kw_only=True)
class SecuritySettings:
    """The options, checked. Without any: no TLS, no authentication.

    `tls_versions`: the oldest and the newest that may be spoken; None: what Python's `ssl` allows.
    """

    protocol: Protocol = Protocol.PLAINTEXT
    ca_location: str | None = None
    ca_text: str | None = attrs.field(default=None, repr=False)
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    check_hostname: bool = True
    tls_versions: tuple[str, str] | None = None
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token_location: str | None = None
    """The file with the token of OAUTHBEARER, which is read for every authentication."""
    token_elsewhere: bool = False
    """Whoever asks has a token of their own."""

    def __attrs_post_init__(self) -> None:
        if self.protocol.has_sasl:
            self._check_sasl()
        elif self.mechanism is not None or self.username is not None or self.token_location:
            _refuse("sasl.*", self._no_effect(), "SASL_SSL or SASL_PLAINTEXT")
        files = (self.ca_location, self.ca_text, self.certificate_location, self.key_location)
        if not self.protocol.has_tls and any(files):
            _refuse("ssl.*", self._no_effect(), "SSL or SASL_SSL")
        if self.ca_location and self.ca_text:
            _refuse("ssl.truststore.certificates", "is given beside a file", "one of the two")
        if self.key_location and not self.certificate_location:
            _refuse(
                "ssl.key.location", "is given without a certificate", "ssl.certificate.location"
            )

    def _check_sasl(self) -> None:
        if self.mechanism is None:
            _refuse("sasl.mechanism", "is missing", f"one of {_names(Mechanism)}")
        if not self.mechanism.has_password:
            if not self.token_location and not self.token_elsewhere:
                _refuse(
                    "sasl.oauthbearer.token.endpoint.url",
                    "is missing",
                    "file:///where/the/token/is, or a token given to the library",
                )
            if self.username is not None or self.password is not None:
                _refuse("sasl.username", "has no effect with OAUTHBEARER", "a token")
            return
        if self.token_location:
            _refuse("sasl.oauthbearer.token.endpoint.url", "needs sasl.mechanism=OAUTHBEARER", "it")
        if not self.username or not self.password:
            _refuse("sasl.username and sasl.password", "are missing", "or sasl.jaas.config")
        if "\0" in self.username + self.password:
            _refuse("sasl.username and sasl.password", "have a zero byte", "none: PLAIN ends there")

    def _no_effect(self) -> str:
        return f"has no effect with security.protocol={self.protocol.value}"


def security_settings(
    options: Mapping[str, str], *, token_elsewhere: bool = False
) -> SecuritySettings:
    """Read Kafka's options; case does not matter in their names, as in Spark.

    Raises:
        SettingError: if options are unknown, contradictory or missing.
    """
    given = {key.lower(): text for key, text in options.items()}
    given = {key: text for key, text in given.items() if key.startswith(PREFIXES)}
    _refuse_the_unknown(given)
    mechanism = _mechanism(given)
    username, password = given.get("sasl.username"), given.get("sasl.password")
    jaas = given.get("sasl.jaas.config")
    if jaas is not None:
        if username is not None or password is not None:
            _refuse("sasl.jaas.config", "is given beside sasl.username", "one of the two")
        username, password = _jaas(jaas, mechanism)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        _refuse("ssl.endpoint.identification.algorithm", f"'{algorithm}'", "https, or empty")
    certificate = _store(given, "keystore", "ssl.certificate.location")
    return SecuritySettings(
        protocol=_protocol(given.get("security.protocol", "PLAINTEXT")),
        ca_location=_store(given, "truststore", "ssl.ca.location"),
        ca_text=given.get("ssl.truststore.certificates") or None,
        certificate_location=certificate,
        key_location=given.get("ssl.key.location") or None,
        key_password=given.get("ssl.key.password"),
        check_hostname=algorithm == "https",
        tls_versions=_tls_versions(given.get("ssl.enabled.protocols")),
        mechanism=mechanism,
        username=username,
        password=password,
        token_location=_token_file(given.get("sasl.oauthbearer.token.endpoint.url")),
        token_elsewhere=token_elsewhere,
    )


def _refuse_the_unknown(given: Mapping[str, str]) -> None:
    for key in sorted(given.keys() - SECURITY_OPTIONS):
        if key in _NOT_HERE:
            _refuse(key, "is not supported", _NOT_HERE[key])
        if key == "enable.ssl.certificate.verification":
            if given[key].lower() != "true":
                _refuse(key, "can only be true: a broker that is not verified may be anybody")
        elif key.endswith(".callback.handler.class"):
            if not given[key].endswith(_HANDLER):
                _refuse(key, "is a class of Java's, and is not supported", f"...{_HANDLER}")
        elif not key.startswith(TUNING):
            _refuse(key, "is not supported", NAMES)


def _names(values: type[Enum]) -> str:
    return ", ".join(one.value for one in values)


def _refuse(option: str, what: str, accepted: str = "") -> NoReturn:
    raise SettingError(option, what, accepted)


def _protocol(text: str) -> Protocol:
    try:
        return Protocol(text.upper())
    except ValueError:
        _refuse("security.protocol", f"'{text}' is not known", _names(Protocol))


def _mechanism(given: Mapping[str, str]) -> Mechanism | None:
    one, other = given.get("sasl.mechanism"), given.get("sasl.mechanisms")
    if one is not None and other is not None and one.upper() != other.upper():
        _refuse("sasl.mechanism", "and sasl.mechanisms differ", "one of the two")
    text = one if one is not None else other
    if text is None:
        return None
    try:
        return Mechanism(text.upper())
    except ValueError:
        _refuse("sasl.mechanism", f"'{text}' is not supported", _names(Mechanism))


def _store(given: Mapping[str, str], store: str, ours: str) -> str | None:
    """The file by our name, or by Java's if it is in PEM."""
    location, kind = given.get(f"ssl.{store}.location"), given.get(f"ssl.{store}.type")
    if kind is not None and kind.upper() != "PEM":
        _refuse(f"ssl.{store}.type", f"'{kind}' cannot be read by Python", f"PEM, or {ours}")
    if not location:
        return given.get(ours) or None
    if kind is None:
        _refuse(
            f"ssl.{store}.location",
            f"is a Java key store unless there is ssl.{store}.type=PEM; Python cannot read one",
            f"PEM files by ssl.{store}.type=PEM, or by {ours}",
        )
    if given.get(ours):
        _refuse(f"ssl.{store}.location", f"is given beside {ours}", "one of the two")
    return location


def _tls_versions(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    words = sorted(filter(None, (word.strip() for word in text.split(","))))
    if not words or not set(words) <= set(_TLS_VERSIONS):
        _refuse("ssl.enabled.protocols", f"'{text}' is not supported", ", ".join(_TLS_VERSIONS))
    return words[0], words[-1]


def _token_file(url: str | None) -> str | None:
    if url is None:
        return None
    path = url.removeprefix(FILE_URL)
    if path == url or not path.startswith("/"):
        _refuse(
            "sasl.oauthbearer.token.endpoint.url",
            "only a file can be read: asking a server for tokens is not supported",
            "file:///where/the/token/is",
        )
    return path


def _jaas(text: str, mechanism: Mechanism | None) -> tuple[str | None, str | None]:
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
    if module == "OAuthBearerLoginModule":
        if found:
            _refuse("sasl.jaas.config", "options of OAuthBearerLoginModule are not supported", "")
        return None, None
    if "username" not in found or "password" not in found:
        _refuse("sasl.jaas.config", "has no username or no password", advice)
    return found["username"], found["password"]
