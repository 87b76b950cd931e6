"""Pages of other sites may not use a node's HTTP port, even though a browser here runs their
scripts. Who may use it otherwise is runtime.http.access' business.

A port on loopback may have no password, so that every program on this machine may use it. But a
browser runs programs of other sites. The attacks, and the defence against each:

- *Another site's page sends a request to this port.* Browsers say whose page it was (Origin,
  Sec-Fetch-*). A POST must also be JSON, which such a page may only send with our permission, and
  we give none (CORS). A POST from a browser must have CONSOLE_HEADER, which needs the same
  permission.
- *Another site's name resolves to this machine* (DNS rebinding), so that the browser takes both for
  one site. Then the Host header has that name. Without a login we only accept names of loopback,
  and the name of the proxy in `listen.http_origin`; with one, such a page has no login.
- *Another site shows our page in a frame* and makes the user press its buttons unknowingly
  (clickjacking): PAGE_HEADERS.

Other programs send none of these headers, and do not need them.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from runtime.config.fields import Address

JSON: Final = "application/json"
CONSOLE_HEADER: Final = "x-evenkeel-console"
"""A browser's POST must have it, with any value: our own page sends it."""
CSRF_HEADER: Final = "x-evenkeel-csrf"
"""What changes something with a browser's login must have it, with the session's text."""
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
"""For pages: nothing from other sites, nothing inline, not in a frame."""
ALL_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Forbidden(ValueError):
    """The request may come from another site; the text says why it is refused and what to do."""


class Guard:
    """`proxy_origin`: where browsers reach a proxy in front of this port; "" for none. `scheme`:
    what this port speaks. `any_name`: it has a login, so it may be reached by any name."""

    def __init__(
        self, proxy_origin: str = "", *, scheme: str = "http", any_name: bool = False
    ) -> None:
        self._scheme, self._any_name = scheme, any_name
        self._proxy_origin = proxy_origin
        self._proxy_host = urlsplit(proxy_origin).netloc

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Check a request; the names of its headers are in lower case.

        Raises:
            Forbidden: the request must be refused.
        """
        host = headers.get("host", "")
        if host and not self._any_name and not self._is_ours(host):
            raise Forbidden(
                f"this port answers to 127.0.0.1 and localhost, not to {host[:100]!r}: behind a "
                "proxy, set listen.http_origin"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in (
            f"{self._scheme}://{host}",
            self._proxy_origin or None,
        ):
            raise Forbidden(f"a page of {origin[:100]!r} may not ask here")
        site = headers.get("sec-fetch-site", "none")
        looks = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not looks:  # a link to our page may be followed
            raise Forbidden("a page of another site may not ask here")
        if method == "POST":
            self._check_post(headers, from_page=origin is not None or "sec-fetch-site" in headers)

    def is_https_proxy(self, headers: Mapping[str, str]) -> bool:
        """Whether a browser has sent this to the proxy, with TLS."""
        through = bool(self._proxy_host) and headers.get("host", "") == self._proxy_host
        return through and self._proxy_origin.startswith("https:")

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
