"""How brokers are trusted and how we say who we are, by Kafka's names (wire/client_settings.py)."""

import ssl
from collections.abc import Mapping
from typing import Final, NoReturn

from pyspark_evenkeel.errors import ConfigurationError
from wire.client_settings import (
    SECRETS,
    SECURITY_OPTIONS,
    Mechanism,
    Protocol,
    SecuritySettings,
    SettingError,
)
from wire.client_settings import security_settings as read_settings

TOKEN_FILE_BYTES_MAX: Final = 64 * 1024
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

__all__ = [
    "SECRETS",
    "SECURITY_OPTIONS",
    "Mechanism",
    "Protocol",
    "SecuritySettings",
    "security_settings",
    "tls_context",
    "token_of",
]


def security_settings(options: Mapping[str, str]) -> SecuritySettings:
    """Read Kafka's options, without the prefix `kafka.`; case does not matter in their names.

    Options that have nothing to do with security are ignored here.

    Raises:
        ConfigurationError: if options are unknown, contradictory or missing.
    """
    try:
        return read_settings(options)
    except SettingError as error:
        _refuse(error.option, error.what, error.accepted)


def tls_context(settings: SecuritySettings) -> ssl.SSLContext | None:
    """The context for TLS connections; None without TLS.

    Raises:
        ConfigurationError: if a file is missing, or is not what it should be.
    """
    if not settings.protocol.has_tls:
        return None
    authorities = settings.ca_location
    try:
        context = ssl.create_default_context(cafile=authorities, cadata=settings.ca_text)
    except (OSError, ValueError) as error:
        name = "ssl.truststore.certificates" if settings.ca_text else "ssl.ca.location"
        _refuse(f"{name} {authorities or ''}".strip(), _why(error), "a PEM file")
    context.check_hostname = settings.check_hostname
    if settings.tls_versions is not None:
        oldest, newest = settings.tls_versions
        context.minimum_version, context.maximum_version = _VERSIONS[oldest], _VERSIONS[newest]
    if settings.certificate_location is not None:
        try:
            context.load_cert_chain(
                settings.certificate_location,
                settings.key_location,
                # always given: otherwise OpenSSL would ask for it on the terminal
                password=settings.key_password or "",
            )
        except (OSError, ssl.SSLError) as error:
            _refuse(
                f"ssl.certificate.location {settings.certificate_location} with its key",
                _why(error),
                "PEM files that belong together, and the right ssl.key.password",
            )
    return context


def token_of(settings: SecuritySettings) -> str:
    """The token of OAUTHBEARER as it is in its file now; "" with another mechanism.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    if settings.token_location is None:
        return ""
    try:
        with open(settings.token_location, encoding="ascii") as file:
            return file.read(TOKEN_FILE_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = _why(error) if isinstance(error, OSError) else "it is no token"
        _refuse(f"sasl.oauthbearer.token.endpoint.url {settings.token_location}", why, "a file")


def _why(error: Exception) -> str:
    """OpenSSL's description, or the system's."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _refuse(option: str, what: str, accepted: str) -> NoReturn:
    advice = f"accepted: {accepted}" if accepted else ""
    raise ConfigurationError(f"option {option}: {what}", advice=advice) from None
