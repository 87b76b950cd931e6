"""Requests to the nodes' HTTP side from outside: to the first node that answers.

It listens on loopback only (`listen.http`), so only users who may log in to a node's machine reach
it: run this there, or forward a port with `ssh -L` (docs/spark.md). Any node will do: all nodes
know the registry, and a change is a proposal on its log.

`http.client` instead of `urllib`: a proxy from the environment must not be used on loopback.
"""

import http.client
import json
from collections.abc import Sequence
from typing import Any, Final

import attrs

TIMEOUT_S: Final = 15.0
"""Longer than a node waits for the registry."""
CONNECT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
TEXT_CHARS_MAX: Final = 300
DEFAULT_PORT: Final = 8092


class AdminError(RuntimeError):
    """No node has carried out the request; the message has the reason of each."""


class RefusedError(AdminError):
    """A node has refused, so the others would too: `status` is HTTP's."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@attrs.frozen
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def endpoints_of(text: str) -> tuple[Endpoint, ...]:
    """Parse `host:port,host:port`, with the default port if none is named.

    Raises:
        ValueError: if the text is not like that.
    """
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        host, colon, port = part.rpartition(":")
        host, port = (host, port) if colon else (part, str(DEFAULT_PORT))
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ValueError(f"{part!r} is not like 127.0.0.1:{DEFAULT_PORT}")
        found.append(Endpoint(host, int(port)))
    if not found:
        raise ValueError("there is no address")
    return tuple(dict.fromkeys(found))


class Nodes:
    """Remembers the node that answered last, and asks it first."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = list(endpoints)

    def get(self, path: str) -> Any:  # noqa: ANN401 # JSON
        """GET from the first node that answers.

        Raises:
            RefusedError: a node refuses.
            AdminError: no node answers.
        """
        return self._ask("GET", path, None)

    def post(self, path: str, body: object) -> Any:  # noqa: ANN401 # JSON
        """POST likewise; if the answer of one node is lost, the next node gets the same request."""
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:  # noqa: ANN401 # JSON
        failures = []
        for endpoint in list(self._endpoints):
            try:
                status, answer = _exchange(endpoint, method, path, body)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{endpoint}: {type(error).__name__} {error}".strip())
                continue
            if 400 <= status < 500:
                raise RefusedError(status, f"{endpoint} refuses: {_said(answer)}")
            if status != http.client.OK:
                failures.append(f"{endpoint}: {status} {_said(answer)}")
                continue
            try:
                told = json.loads(answer)
            except ValueError as error:
                failures.append(f"{endpoint}: the answer is not JSON: {error}")
                continue
            self._endpoints.remove(endpoint)
            self._endpoints.insert(0, endpoint)
            return told
        raise AdminError(f"{method} {path}: {'; '.join(failures)}")


def _exchange(endpoint: Endpoint, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(TIMEOUT_S)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()


def _said(answer: bytes) -> str:
    """The reason in an answer that is not a success."""
    text = answer.decode(errors="replace").strip()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        text = value["error"]
    return text[:TEXT_CHARS_MAX]
