"""How another terminal asks the launcher for a fault: a unix socket in the data directory.

One line of JSON each way: `{"do": "kill", "node": 2}`, then `{"ok": true, "message": "..."}`. The
launcher stays the parent of every node, so only the launcher starts them and knows how they ended.
"""

import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio

LINE_BYTES_MAX: Final = 4096
CONVERSATIONS_MAX: Final = 8
ASK_S_MAX: Final = 5.0
"""How long a client may take to send its line."""
ANSWER_S_MAX: Final = 90.0
"""A restart drains, stops, starts and waits until the node is ready."""
SOCKET_PATH_BYTES_MAX: Final = 100
"""The kernel's limit is 107 (unix(7))."""

Handler: TypeAlias = Callable[[str, int], Awaitable[str]]
"""Does it to that node and returns what was done; raises `Refused` with the reason."""


class Refused(Exception):
    """The request cannot be carried out; the message is the answer."""


class ControlError(RuntimeError):
    """The launcher refused, or did not answer."""


def socket_path(data_dir: Path) -> Path:
    """In the data directory, or in a private temporary one if that path is too long."""
    path = data_dir / "control.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    return Path(tempfile.mkdtemp(prefix="evenkeel-")) / "control.sock"


async def serve(
    path: Path,
    handler: Handler,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer until cancelled."""
    limit = trio.CapacityLimiter(CONVERSATIONS_MAX)

    async def talk(stream: trio.SocketStream) -> None:
        async with limit, stream:
            await _answer_one(stream, handler)

    listener = _listen(path)
    try:
        await trio.serve_listeners(talk, [trio.SocketListener(listener)], task_status=task_status)
    finally:
        os.unlink(path)


def _listen(path: Path) -> trio.socket.SocketType:
    """Whoever may open the socket may kill nodes: so only its owner may open it."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    finally:
        os.umask(mask)
    listener.listen(CONVERSATIONS_MAX)
    listener.setblocking(False)
    return trio.socket.from_stdlib_socket(listener)


async def _answer_one(stream: trio.SocketStream, handler: Handler) -> None:
    try:
        with trio.fail_after(ASK_S_MAX):
            line = await _line(stream)
        what, node = _parse(line)
        answer = {"ok": True, "message": await handler(what, node)}
    except (Refused, ValueError) as error:
        answer = {"ok": False, "message": str(error)}
    except (trio.TooSlowError, trio.BrokenResourceError):
        return
    try:
        await stream.send_all(json.dumps(answer).encode() + b"\n")
    except trio.BrokenResourceError:
        return  # the asker has gone; what was asked for is done


async def _line(stream: trio.SocketStream) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE_BYTES_MAX:
        received = await stream.receive_some(LINE_BYTES_MAX - len(data))
        if not received:
            break
        data += received
    return data


def _parse(line: bytes) -> tuple[str, int]:
    value: Any = json.loads(line)
    if (
        isinstance(value, dict)
        and isinstance(value.get("do"), str)
        and type(value.get("node")) is int
    ):
        return value["do"], value["node"]
    raise ValueError('expected {"do": "kill", "node": 1}')


def ask(path: Path, what: str, node: int, *, timeout_s: float = ANSWER_S_MAX) -> str:
    """Ask the launcher at `path`, and wait until it is done.

    Raises:
        ControlError: if it refuses, with the reason, or there is no answer.
    """
    data = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(os.fspath(path))
            client.sendall(json.dumps({"do": what, "node": node}).encode() + b"\n")
            while not data.endswith(b"\n") and len(data) < LINE_BYTES_MAX * 16:
                received = client.recv(LINE_BYTES_MAX)
                if not received:
                    break
                data += received
        answer: Any = json.loads(data)
    except TimeoutError as error:
        raise ControlError(f"the launcher did not answer within {timeout_s:.0f} s") from error
    except (OSError, ValueError) as error:
        raise ControlError(f"the launcher does not answer: {error}") from error
    if not answer["ok"]:
        raise ControlError(str(answer["message"]))
    return str(answer["message"])
