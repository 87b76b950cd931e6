"""One GET of a small document, in a thread: with a deadline, a bound, and nothing followed.

No redirects (an address that is not the configured one decides who may log in), no proxies from the
environment, no cookies, and certificates are verified, always.
"""

import http.client
import io
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

TIMEOUT_S: Final = 5.0
"""For all of it; each wait for the network has as much."""
PIECE_BYTES: Final = 16 * 1024


class FetchError(Exception):
    """Why there is no document, in words for the operator."""


def url_problem(url: str) -> str:
    """Why a URL is not used to fetch keys from; "" if it is."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("https", "http") or not host:
        return "expected https://HOST/PATH"
    if parts.username is not None or parts.password is not None:
        return "a URL has no user and password here"
    if parts.scheme == "http" and not _is_loopback(host):
        return "whoever is on the way could give keys of his own; use https, or a loopback address"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "it has characters that a URL has not"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def fetch(
    url: str, bytes_max: int, monotonic: Callable[[], float], authorities: Path | None = None
) -> bytes:
    """
    Raises:
        FetchError: it cannot be fetched, or is larger.
    """
    until = monotonic() + TIMEOUT_S
    parts = urlsplit(url)
    try:
        connection = _connection(parts, authorities)
        try:
            connection.response_class = _within(until, monotonic)
            path = parts.path or "/"
            connection.request(
                "GET",
                f"{path}?{parts.query}" if parts.query else path,
                headers={"Accept": "application/json", "Connection": "close"},
            )
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise FetchError(f"it answers {answer.status}")
            found = bytearray()
            while piece := answer.read1(PIECE_BYTES):
                found += piece
                if len(found) > bytes_max:
                    raise FetchError(f"more than {bytes_max} bytes")
                if monotonic() > until:
                    raise FetchError(f"it takes more than {TIMEOUT_S:g} s")
            return bytes(found)
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        raise FetchError(f"its certificate is refused: {error.verify_message}") from error
    except OSError as error:
        raise FetchError(error.strerror or str(error) or type(error).__name__) from error
    except http.client.HTTPException as error:
        raise FetchError(f"it does not answer as HTTP does: {type(error).__name__}") from error


def _within(until: float, monotonic: Callable[[], float]) -> Any:  # noqa: ANN401  a class
    """Answers that are whole by then: also one whose head comes byte by byte ends."""

    def answer(sock: socket.socket, **how: Any) -> http.client.HTTPResponse:  # noqa: ANN401
        patient: Any = _Patient(sock, until, monotonic)
        return http.client.HTTPResponse(patient, **how)

    return answer


class _Patient(io.RawIOBase):
    """What HTTPResponse needs of a socket: to read from it."""

    def __init__(self, sock: socket.socket, until: float, monotonic: Callable[[], float]) -> None:
        self._sock, self._until, self._monotonic = sock, until, monotonic
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401
        left = self._until - self._monotonic()
        if left <= 0:
            raise FetchError(f"it takes more than {TIMEOUT_S:g} s")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connection(parts: SplitResult, authorities: Path | None) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
