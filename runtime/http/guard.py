"""Who may ask a node over HTTP: the pages of other sites may not, though they run on this machine.

The port is on loopback and has no password, so whoever runs a program here may use it. A browser
runs everybody's programs. What keeps these away:

- *Another site's page sends a request here.* Browsers say whose page it was (Origin, Sec-Fetch-*).
  A POST must be JSON as well, which such a page cannot send without being allowed to first, and we
  allow nobody; from a browser it must carry CONSOLE_HEADER, which takes the same permission.
- *Another site's name is made to mean this machine* (DNS rebinding), so that for the browser all of
  it is one site: the Host is then that name. Only names of loopback are ours, and the one of the
  proxy that `listen.http_origin` names.
- *Another site shows our page in a frame* and lets the user press its buttons unseen: PAGE_HEADERS.

What is no browser sends none of these headers, and is not asked for them.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from runtime.config.fields import Address

JSON: Final = "application/json"
CONSOLE_HEADER: Final = "x-evenkeel-console"
"""A browser's POST must have it, with any value: our own page sends it."""
PAGE_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'",
    ),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
"""For pages: nothing from elsewhere, nothing inline, in nobody's frame."""
ALL_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Forbidden(ValueError):
    """The request may be somebody else's idea; the text says why and what to do."""


class Guard:
    """`proxy_origin`: where a proxy in front of this port is reached by browsers, "" for none."""

    def __init__(self, proxy_origin: str = "") -> None:
        self._proxy_origin = proxy_origin
        self._proxy_host = urlsplit(proxy_origin).netloc

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Headers with lower-case names.

        Raises:
            Forbidden: the request is not answered.
        """
        host = headers.get("host", "")
        if host and not self._is_ours(host):
            raise Forbidden(
                f"this port answers to 127.0.0.1 and localhost, not to {host[:100]!r}: behind a "
                "proxy, set listen.http_origin"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", self._proxy_origin or None):
            raise Forbidden(f"a page of {origin[:100]!r} may not ask here")
        site = headers.get("sec-fetch-site", "none")
        looks = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not looks:  # a link to our page may be followed
            raise Forbidden("a page of another site may not ask here")
        if method == "POST":
            self._check_post(headers, from_page=origin is not None or "sec-fetch-site" in headers)

    def _check_post(self, headers: Mapping[str, str], *, from_page: bool) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise Forbidden(f"a POST needs the header Content-Type: {JSON}")
        if from_page and CONSOLE_HEADER not in headers:
            raise Forbidden(f"a POST from a browser needs the header {CONSOLE_HEADER}")

    def _is_ours(self, host: str) -> bool:
        if self._proxy_host and host == self._proxy_host:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return Address(name, 0).is_loopback
