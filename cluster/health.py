"""HTTP requests to a node: readiness, status, and the administration calls.

`http.client` and not `urllib`: a proxy from the environment must not be used on loopback.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio

from cluster import access
from cluster.spec import ClusterSpec
from cluster.state import State
from runtime.config.config import Address

TIMEOUT_S: Final = 2.0
OPERATOR_S: Final = 20.0
"""More than a node waits for the registry (runtime.admin.balancer.PROPOSE_TIMEOUT_S)."""
REASON_BYTES_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
NO_ANSWER: Final = "no answer in time"


class HealthError(RuntimeError):
    """The node did not answer, or not what was asked for."""


def request(
    address: Address,
    method: str,
    path: str,
    body: object = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> tuple[int, bytes]:
    """One request on a connection of its own: (status, answer).

    Raises:
        HealthError: if there is no answer.
    """
    way = access.way_to(address)
    connection = way.connection(address, timeout_s)
    try:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        connection.request(method, path, body=data, headers={**headers, **way.headers})
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise HealthError(f"{access.url(address)} does not answer: {in_words(error)}") from error
    finally:
        connection.close()


def in_words(error: Exception) -> str:
    """Why a connection failed, without numbers of the kernel."""
    if isinstance(error, TimeoutError):
        return NO_ANSWER
    if isinstance(error, socket.gaierror):
        return "the name is unknown"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error) or type(error).__name__


def call(
    address: Address,
    method: str,
    path: str,
    body: object = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> Any:  # noqa: ANN401 (it is JSON)
    """A request whose answer is JSON.

    Raises:
        HealthError: if there is no answer, or one that refuses.
    """
    status, data = request(address, method, path, body, timeout_s=timeout_s)
    if status != 200:
        text = data[:500].decode(errors="replace").strip()
        raise HealthError(f"{access.url(address)}{path}: {status} {text}")
    try:
        return json.loads(data)
    except ValueError as error:
        raise HealthError(
            f"{access.url(address)}{path}: the answer is not JSON: {error}"
        ) from error


def not_ready(address: Address, *, timeout_s: float = TIMEOUT_S) -> str:
    """Why the node does not serve yet, in its own words; "" if it does."""
    try:
        status, body = request(address, "GET", "/readyz", timeout_s=timeout_s)
    except HealthError:
        return "it does not answer yet"
    if status == 200:
        return ""
    lines = body[:REASON_BYTES_MAX].decode(errors="replace").splitlines()
    return lines[0] if lines and lines[0].strip() else "it does not say why"


async def not_ready_async(address: Address, *, timeout_s: float = TIMEOUT_S) -> str:
    ask = partial(not_ready, address, timeout_s=timeout_s)
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)


def is_ready(address: Address, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether the node reports that it takes part and serves."""
    try:
        return request(address, "GET", "/readyz", timeout_s=timeout_s)[0] == 200
    except HealthError:
        return False


def ask_any(spec: ClusterSpec, running: State, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 (it is JSON)
    """The answer of the first running node that gives one.

    Raises:
        HealthError: if none does; the message has all of their reasons.
    """
    failures = []
    for node in spec.nodes:
        if running.nodes[node.id].state != "running":
            continue
        try:
            return call(node.http, method, path, body, timeout_s=OPERATOR_S)
        except HealthError as error:
            failures.append(str(error))
    raise HealthError("; ".join(failures) or "no node is running")


async def call_async(
    address: Address,
    method: str,
    path: str,
    body: object = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> Any:  # noqa: ANN401 (it is JSON)
    """As `ask`, without blocking the loop."""
    ask = partial(call, address, method, path, body, timeout_s=timeout_s)
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)


async def place(address: Address, wanted: Mapping[str, object]) -> int:
    """Change the ideal placement, as `evenkeel balance` does (runtime.admin.balancer): its version.

    Raises:
        HealthError: if the node did not answer, or refused.
    """
    answer = await call_async(address, "POST", "/admin/placement", wanted, timeout_s=OPERATOR_S)
    return int(answer["version"])


async def is_ready_async(address: Address, *, timeout_s: float = TIMEOUT_S) -> bool:
    ask = partial(is_ready, address, timeout_s=timeout_s)
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)


async def accepts(address: Address, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether something takes connections there."""
    with trio.move_on_after(timeout_s):
        try:
            stream = await trio.open_tcp_stream(address.host, address.port)
        except OSError:
            return False
        await trio.aclose_forcefully(stream)
        return True
    return False
