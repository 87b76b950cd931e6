"""Security settings under librdkafka's and Kafka's names, as files for other tools have them.

    security.protocol                       plaintext or ssl, in any case
    ssl.ca.location                         authorities to trust, in PEM, and not the system's
    ssl.certificate.location                our certificate, with its chain, in PEM
    ssl.key.location, ssl.key.password      its key
    ssl.endpoint.identification.algorithm   https (the default), or none or empty: any name will do

Other settings that such files often have (`bootstrap.servers`, `client.id`) say nothing about
security and are left alone; one about security that is not known here is refused, for whoever wrote
it relies on it.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from evenkeel.errors import ConfigurationError

FILE_BYTES_MAX: Final = 64 * 1024
PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.")
KNOWN: Final = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_NO_NAMES: Final = ("", "none")


def read(path: Path) -> dict[str, str]:
    """A file of lines `name=value`; `#` and `!` begin comments, as in Java.

    Raises:
        ConfigurationError: if it cannot be read, or a line is none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", why=str(error.strerror)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no text", why="it is not UTF-8") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} is longer than {FILE_BYTES_MAX} bytes")
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:  # the line may hold a password: it is not shown
            raise ConfigurationError(f"{path}, line {number}: expected name=value")
        found[name.strip()] = value.strip()
    return found


def tls_of(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context for connections with these settings; None without TLS.

    Raises:
        ConfigurationError: if a setting of security is not known, or a file is wrong.
    """
    for name in sorted(properties):
        if name.startswith("sasl."):
            raise ConfigurationError(f"{name} is not supported", why="there is no SASL here yet")
        if name.startswith(PREFIXES) and name not in KNOWN:
            raise ConfigurationError(
                f"{name} is not supported", advice=f"known are {', '.join(KNOWN)}"
            )
    protocol = properties.get("security.protocol", "plaintext").lower()
    given = [name for name in KNOWN if name.startswith("ssl.") and properties.get(name)]
    if protocol == "plaintext":
        if given:
            why = "it has no effect with security.protocol=plaintext"
            raise ConfigurationError(f"{given[0]} is set", why=why, advice="security.protocol=ssl")
        return None
    if protocol != "ssl":
        why = "there is no SASL here yet" if protocol.startswith("sasl") else "there is no such one"
        raise ConfigurationError(
            f"security.protocol={protocol} is not supported", why=why, advice="plaintext or ssl"
        )
    return _context(properties)


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    authorities = properties.get("ssl.ca.location") or None
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise _unusable("ssl.ca.location", str(authorities), error) from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() in _NO_NAMES:
        context.check_hostname = False
    certificate = properties.get("ssl.certificate.location")
    if not certificate:
        if properties.get("ssl.key.location"):
            raise ConfigurationError("ssl.key.location is set without ssl.certificate.location")
        return context
    key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
    try:
        context.load_cert_chain(certificate, key or None, lambda: password or "")
    except OSError as error:
        raise _unusable("ssl.certificate.location", certificate, error) from error
    return context


def _unusable(name: str, path: str, error: OSError) -> ConfigurationError:
    why = str(getattr(error, "reason", "") or error.strerror or error).lower().replace("_", " ")
    return ConfigurationError(f"{name}={path} cannot be used", why=why)
