"""Where keys come from: what is wrong is said, and the old ones stay."""

import http.server
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from broker.security.token_keys import KEY_SET_BYTES_MAX, KeysError
from runtime.oauth import fetching
from runtime.oauth.fetching import FetchError, fetch, url_problem
from runtime.oauth.keys import LOOK_EVERY_S, RETRY_S, File, InThread, Keys, Url
from storage.disk.threads import SYSTEM_THREADS
from tests.broker.security.tokens_of import EC_KEY, KEYS, OTHER_KEY, jwk_of, key_set
from tests.runtime.doubles import Recorder

S = 1_000_000_000


class Now(InThread):
    """Works at once, on the caller's thread; counts."""

    def __init__(self) -> None:
        super().__init__("never started", SYSTEM_THREADS)
        self.jobs = 0

    def submit(self, work: Any, done: Any) -> None:
        self.jobs += 1
        done(work())

    def take(self) -> None:
        """Nothing waits."""


def write(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)


def test_a_file_is_read_again_when_it_changes_and_old_keys_stay(tmp_path: Path) -> None:
    path, recorder, thread = tmp_path / "keys.json", Recorder(), Now()
    with pytest.raises(KeysError, match="cannot be read"):
        Keys(File(path), recorder.journal, thread).read_now()
    write(path, b"{}")
    with pytest.raises(KeysError, match="JSON Web Key Set"):
        Keys(File(path), recorder.journal, thread).read_now()
    write(path, KEYS)
    keys = Keys(File(path), recorder.journal, thread)
    keys.read_now()
    assert keys.current is not None
    assert [one.kid for one in keys.current.keys] == ["rsa", "ec"]
    before = keys.current
    keys.tick(S)
    keys.tick(2 * S)
    assert thread.jobs == 1, "not more often than it says"
    keys.hurry()
    keys.tick(2 * S)
    assert thread.jobs == 2, "but at once when the operator says so"
    write(path, b"broken")
    keys.tick((2 + LOOK_EVERY_S) * S)
    assert keys.current is before
    assert "not JSON" in keys.complaint
    os.unlink(path)
    keys.tick((3 + 2 * LOOK_EVERY_S) * S)
    assert keys.failed_total == 2
    write(path, key_set(jwk_of(OTHER_KEY, "new")))
    keys.tick((4 + 3 * LOOK_EVERY_S) * S)
    assert keys.complaint == ""
    assert [one.kid for one in keys.current.keys] == ["new"]


def test_an_unknown_key_makes_us_look_soon_but_not_all_the_time() -> None:
    class Source:
        every_s, hurry_s = 3_600, RETRY_S

        def read(self) -> Any:
            return None

    thread = Now()
    keys = Keys(Source(), Recorder().journal, thread)
    keys.tick(0)
    for second in range(1, 35):
        keys.missed()
        keys.tick(second * S)
    assert thread.jobs == 4, "at the start, and every RETRY_S"
    keys.tick(40 * S)
    for second in range(50, 3_600, 50):
        keys.tick(second * S)
    assert thread.jobs == 5, "one more for the last miss"


def test_a_bug_while_reading_is_a_complaint() -> None:
    class Source:
        every_s, hurry_s = 10, 10

        def read(self) -> Any:
            raise RuntimeError("a bug")

    keys = Keys(Source(), Recorder().journal, Now())
    keys.tick(0)
    assert keys.complaint == "internal error: RuntimeError"


# -- HTTP -----------------------------------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {
        "/keys": (200, KEYS),
        "/keys?tenant=1": (200, key_set(jwk_of(EC_KEY, "one"))),
        "/moved": (302, b""),
        "/broken": (500, b""),
        "/huge": (200, b" " * (KEY_SET_BYTES_MAX + 1)),
        "/html": (200, b"<html>"),
    }

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def source(url: str) -> Url:
    return Url(url, 3_600, SYSTEM_THREADS.monotonic, None)


def test_keys_are_fetched(url: str) -> None:
    found = source(f"{url}/keys").read()
    assert found is not None
    assert [one.kid for one in found.keys] == ["rsa", "ec"]
    one = source(f"{url}/keys?tenant=1").read()
    assert one is not None
    assert [key.kid for key in one.keys] == ["one"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/moved", "it answers 302"),
        ("/broken", "it answers 500"),
        ("/nowhere", "it answers 404"),
        ("/huge", "more than"),
        ("/html", "not JSON"),
    ],
)
def test_what_is_fetched_and_is_no_key_set(url: str, path: str, why: str) -> None:
    with pytest.raises(KeysError, match=why):
        source(url + path).read()


def test_what_cannot_be_fetched(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FetchError):
        fetch("https" + url.removeprefix("http") + "/keys", 1_000, SYSTEM_THREADS.monotonic)
    with pytest.raises(FetchError, match="more than 10 bytes"):
        fetch(url + "/keys", 10, SYSTEM_THREADS.monotonic)
    ticks = iter(range(0, 1_000_000, 100))
    with pytest.raises(FetchError, match="it takes more than"):
        fetch(url + "/keys", 100_000, lambda: next(ticks))
    monkeypatch.setattr(fetching, "TIMEOUT_S", 0.2)
    with pytest.raises(FetchError):
        fetch("http://127.0.0.1:1/keys", 1_000, SYSTEM_THREADS.monotonic)


def test_an_answer_whose_head_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no new key would ever be read, and none be taken back, until the node's next start."""
    monkeypatch.setattr(fetching, "TIMEOUT_S", 0.3)
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(100):
                if over.wait(0.1):
                    return
                client.sendall(b"X: y\r\n")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        port = server.getsockname()[1]
        with pytest.raises(FetchError, match=r"takes more than|timed out"):
            fetch(f"http://127.0.0.1:{port}/keys", 1_000, SYSTEM_THREADS.monotonic)
        assert thread.is_alive()
    finally:
        over.set()
        thread.join()
        server.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://login.example.com/keys", ""),
        ("http://localhost:8080/keys", ""),
        ("http://127.0.0.1/keys", ""),
        ("http://[::1]:80/keys", ""),
        ("http://login.example.com/keys", "use https"),
        ("http://127.0.0.1.example.com/keys", "use https"),
        ("https://user:secret@login.example.com/", "no user and password"),
        ("file:///etc/keys", "expected https"),
        ("login.example.com", "expected https"),
        ("https://login.example.com/a b", "characters"),
        ("https://login.example.com:99999/", "not a URL"),
        ("https://[", "not a URL"),
    ],
)
def test_urls_that_are_used(url: str, why: str) -> None:
    assert (why in url_problem(url)) if why else url_problem(url) == ""
