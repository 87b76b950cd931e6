"""A node that asks for tokens, and librdkafka: who gets in, and for how long."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.broker.security.tokens_of import KEYS, OTHER_KEY, jwk_of, key_set, token
from tests.cluster.security.test_sasl import Node
from tests.cluster.security.test_tls import free_ports, until
from tests.doses import FULL, ONLY_IN_FULL

pytestmark = pytest.mark.cluster


class Authority(http.server.BaseHTTPRequestHandler):
    keys = KEYS

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(Authority.keys)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Authority)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    made = Node(tmp_path_factory.mktemp("oauth"), free_ports(3))
    made.mechanisms = '["OAUTHBEARER", "SCRAM-SHA-512"]'
    made.more = f"""
[oauth]
jwks_url = "http://127.0.0.1:{server.server_port}/keys"
issuer = "https://login.example.com"
audience = ["bus"]
without_tls = true
"""
    try:
        made.start()
        yield made
    finally:
        if made.process is not None:
            made.process.terminate()
            made.process.wait(30)
        server.shutdown()
        server.server_close()
        thread.join()


def client(node: Node, made: Callable[[], bytes], lasts_s: float = 600) -> AdminClient:
    """With tokens that `made` makes; it asks for a new one as they end."""

    def tell(_config: str) -> tuple[str, float]:
        return made().decode(), time.time() + lasts_s

    return AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{node.ports + 2}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": tell,
            "error_cb": node.errors.append,
        }
    )


def served(admin: AdminClient) -> bool:
    admin.poll(0)
    with suppress(KafkaException):
        admin.list_topics(timeout=2)
        return True
    return False


def now_s() -> int:
    return int(time.time())


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_tokens_open_and_close(node: Node) -> None:
    """A right token is served, wrong ones are not; a new key is fetched; a session is renewed."""
    right = client(node, lambda: token(exp=now_s() + 600, sub="admin"))
    until(lambda: served(right), "the keys have been fetched, and the token is believed")
    for wrong in (
        lambda: token(exp=now_s() + 600, aud="another"),
        lambda: token(exp=now_s() - 600),
        lambda: token(exp=now_s() + 600, key=OTHER_KEY),
    ):
        node.errors.clear()
        stranger = client(node, wrong)
        until(lambda one=stranger: one.poll(0.1) or node.errors, "it is refused")
        assert node.errors[0].code() == KafkaError._AUTHENTICATION
        assert not served(stranger)
    new = client(node, lambda: token(exp=now_s() + 600, kid="new", key=OTHER_KEY, sub="admin"))
    assert not served(new)
    Authority.keys = key_set(jwk_of(OTHER_KEY, "new"))
    until(lambda: served(new), "the new key was fetched")
    made: list[int] = []

    def short() -> bytes:
        made.append(now_s())
        return token(exp=now_s() + 4, kid="new", key=OTHER_KEY, sub="admin")

    node.errors.clear()
    brief = client(node, short, lasts_s=4)
    until(lambda: served(brief), "it is served")
    until(lambda: served(brief) and len(made) > 2, "and its session was renewed")
    log = (node.folder / "log").read_text()
    assert "eyJ" not in log, "no token is in the log"
