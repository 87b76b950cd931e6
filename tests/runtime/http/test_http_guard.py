"""Pages of other sites must not send requests to a node, although they run on its machine."""

import pytest

from runtime.config.sections import ListenSection
from runtime.http.guard import PAGE_HEADERS, Forbidden, Guard

HOST = "127.0.0.1:8092"
JSON = {"content-type": "application/json"}
OUR_PAGE = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
BUTTON = {"host": HOST, **JSON, **OUR_PAGE, "x-evenkeel-console": "1"}


@pytest.mark.parametrize("host", [HOST, "127.0.0.1", "localhost:1", "[::1]:8092", "127.9.9.9:80"])
def test_programs_on_this_machine_may_ask(host: str) -> None:
    """They send no header that names a page."""
    Guard().check("GET", {"host": host})
    Guard().check("POST", {"host": host, **JSON})
    Guard().check("POST", {"host": host, "content-type": "Application/JSON; charset=utf-8"})
    Guard().check("GET", {})  # HTTP/1.0


def test_our_own_page_may_ask() -> None:
    Guard().check("GET", {"host": HOST, "sec-fetch-site": "same-origin"})
    Guard().check("POST", BUTTON)


def test_a_link_to_our_page_may_be_followed() -> None:
    link = {"host": HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    Guard().check("GET", link)
    with pytest.raises(Forbidden):  # a form that another page sends
        Guard().check("POST", {**link, **JSON, "x-evenkeel-console": "1"})


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8092", "127.0.0.1.evil.example", "localhost.evil", "[::1", "@"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_name_for_this_machine_is_not_ours(host: str, method: str) -> None:
    """DNS rebinding: to the browser it is all one site, so only the Host header reveals it."""
    with pytest.raises(Forbidden, match=r"listen\.http_origin"):
        Guard().check(method, {**BUTTON, "host": host, "origin": f"http://{host}"})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"origin": "http://evil.example"}, "may not ask here"),
        ({"origin": "null"}, "may not ask here"),
        ({"origin": "http://127.0.0.1:9999"}, "may not ask here"),
        ({"origin": f"https://{HOST}"}, "may not ask here"),
        ({"sec-fetch-site": "cross-site"}, "another site"),
        ({"sec-fetch-site": "same-site"}, "another site"),
        ({"content-type": "text/plain"}, "Content-Type: application/json"),
        ({"content-type": "application/x-www-form-urlencoded"}, "Content-Type"),
        ({"content-type": ""}, "Content-Type"),
    ],
)
def test_what_another_page_can_send_is_refused(changed: dict[str, str], why: str) -> None:
    with pytest.raises(Forbidden, match=why):
        Guard().check("POST", {**BUTTON, **changed})


def test_a_browser_must_show_that_it_was_our_script() -> None:
    for mark in ({"origin": f"http://{HOST}"}, {"sec-fetch-site": "same-origin"}):
        with pytest.raises(Forbidden, match="x-evenkeel-console"):
            Guard().check("POST", {"host": HOST, **JSON, **mark})


def test_a_picture_of_another_page_gets_nothing() -> None:
    """<img src="http://127.0.0.1:8092/metrics">, and an event stream that the page could not
    read."""
    for mode in ("no-cors", "cors"):
        with pytest.raises(Forbidden):
            Guard().check(
                "GET", {"host": HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": mode}
            )


def test_a_proxy_is_another_name_of_ours() -> None:
    guard = Guard("https://bus.example.com")
    page = {**BUTTON, "origin": "https://bus.example.com"}
    guard.check("POST", {**page, "host": "bus.example.com"})
    guard.check("POST", page)  # it may put its own name for us there
    guard.check("POST", BUTTON)
    for origin in ("http://bus.example.com", "https://bus.example.com.evil"):
        with pytest.raises(Forbidden):
            guard.check("POST", {**page, "origin": origin})


@pytest.mark.parametrize(
    "origin", ["bus.example.com", "ftp://a", "https://a/b", "https://", "https://A", "https://a?b"]
)
def test_a_proxy_is_named_as_browsers_name_it(origin: str) -> None:
    with pytest.raises(ValueError, match=r"https://bus\.example\.com"):
        ListenSection(http_origin=origin)
    ListenSection(http_origin="http://localhost:9000")


def test_a_page_runs_nothing_but_our_files() -> None:
    policy = dict(PAGE_HEADERS)["Content-Security-Policy"]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    assert dict(PAGE_HEADERS)["X-Frame-Options"] == "DENY"
