"""Files of settings for Kafka's own tools and librdkafka, read as Java reads them, and what they
say about security (wire/client_settings.py).

A line is `name=value`; `:` or a blank do as well as `=`. `#` and `!` begin a comment. A backslash
at the end of a line continues it, which long `sasl.jaas.config` often need, and elsewhere takes
away the meaning of the next character: a backslash in a password is written twice.

Settings that have nothing to do with security (`bootstrap.servers`, `client.id`) are left alone;
one about security that is not known is refused, for whoever wrote it relies on it.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from evenkeel.errors import ConfigurationError
from evenkeel.sasl import Sasl, TokenSource
from wire.client_settings import SecuritySettings, SettingError, security_settings

FILE_BYTES_MAX: Final = 64 * 1024
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NAME: Final = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+)(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(path: Path) -> dict[str, str]:
    """The settings in a file.

    Raises:
        ConfigurationError: if it cannot be read, or a line is none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", why=str(error.strerror)) from error
    except UnicodeDecodeError:  # whose text has what the file has
        raise ConfigurationError(f"{path} is no text", why="it is not UTF-8") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} is longer than {FILE_BYTES_MAX} bytes")
    found: dict[str, str] = {}
    for number, line in _lines(text):
        match = _NAME.fullmatch(line)
        if match is None:  # the line may hold a password: it is not shown
            raise ConfigurationError(f"{path}, line {number}: expected name=value")
        try:
            found[_plain(match[1])] = _plain(match[2])
        except UnicodeDecodeError:  # whose text has what the line has
            what = f"{path}, line {number}: half of a character: \\uXXXX is one of a pair"
            raise ConfigurationError(what) from None
    return found


def written(settings: Mapping[str, str]) -> str:
    """A file's text that `read` gives back, and Java, too."""
    lines = []
    for name, value in settings.items():
        text = re.sub(r"[\\\t\n\r\f]", lambda found: _SPELLED[found[0]], value)
        if text[:1] == " ":
            text = "\\" + text
        if text[-1:] == " ":  # which is lost where files are edited
            text = text[:-1] + "\\u0020"
        lines.append(f"{name}={text}\n")
    return "".join(lines)


_SPELLED: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each with the number of its first line: comments and empty ones left out, continued ones put
    together."""
    begun, whole = 0, ""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(" \t\f")
        if not whole:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            whole += line[:-1]
        else:
            yield begun, (whole + line).rstrip(" \t\f")
            whole = ""
    if whole:
        yield begun, whole


def _plain(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        word = found[1]
        return chr(int(word[1:], 16)) if len(word) > 1 else _ESCAPED.get(word, word)

    # Java writes a character beyond U+FFFF as a pair of these.
    return _ESCAPE.sub(meant, text).encode("utf-16", "surrogatepass").decode("utf-16")


def security_of(
    properties: Mapping[str, str], token: str | TokenSource | None = None
) -> tuple[ssl.SSLContext | None, Sasl | None]:
    """The context for connections with these settings, None without TLS; and who we are, if brokers
    are told so by SASL. `token`: for OAUTHBEARER, where the settings name no file with one.

    Raises:
        ConfigurationError: if a setting of security is not known, or a file is wrong.
    """
    try:
        settings = security_settings(properties, token_elsewhere=token is not None)
    except SettingError as error:
        what, accepted = f"{error.option} {error.what}", error.accepted
        advice = f"accepted: {accepted}" if accepted else ""
        raise ConfigurationError(what, advice=advice) from None
    if settings.mechanism is None:
        sasl = None
    elif settings.mechanism.has_password:
        assert settings.username is not None
        assert settings.password is not None
        sasl = Sasl(
            mechanism=settings.mechanism, username=settings.username, password=settings.password
        )
    else:
        where = settings.token_location
        source = token if token is not None or where is None else TokenFile(where)
        sasl = Sasl(mechanism=settings.mechanism, token=source)
    return (_context(settings) if settings.protocol.has_tls else None), sasl


class TokenFile:
    """Gives the token that is in a file now."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> str:
        try:
            with open(self._path, encoding="ascii") as file:
                return file.read(FILE_BYTES_MAX)
        except UnicodeDecodeError:
            raise ConfigurationError(f"{self._path} is no token", why="it is not ASCII") from None
        except OSError as error:
            what = f"the token in {self._path} cannot be read"
            raise ConfigurationError(what, why=str(error.strerror)) from error


def _context(settings: SecuritySettings) -> ssl.SSLContext:
    authorities = settings.ca_location
    try:
        context = ssl.create_default_context(cafile=authorities, cadata=settings.ca_text)
    except (OSError, ValueError) as error:
        name = "ssl.truststore.certificates" if settings.ca_text else "ssl.ca.location"
        raise _unusable(name, authorities, error) from error
    context.check_hostname = settings.check_hostname
    if settings.tls_versions is not None:
        oldest, newest = settings.tls_versions
        context.minimum_version, context.maximum_version = _VERSIONS[oldest], _VERSIONS[newest]
    certificate, password = settings.certificate_location, settings.key_password or ""
    if certificate is not None:
        try:
            # a password is always given: otherwise OpenSSL would ask for it on the terminal
            context.load_cert_chain(certificate, settings.key_location, lambda: password)
        except OSError as error:
            raise _unusable("ssl.certificate.location", certificate, error) from error
    return context


def _unusable(name: str, path: str | None, error: Exception) -> ConfigurationError:
    told = getattr(error, "reason", "") or getattr(error, "strerror", "") or error
    why = str(told).lower().replace("_", " ")
    what = name if path is None else f"{name}={path}"
    return ConfigurationError(f"{what} cannot be used", why=why)
