"""The control socket: one line each way; no client can block it or crash it."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from cluster import control


async def handler(what: str, node: int) -> str:
    await trio.lowlevel.checkpoint()
    if what != "kill":
        raise control.Refused(f"cannot {what}")
    return f"killed {node}"


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Path]:
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, path, handler)
        yield path
        nursery.cancel_scope.cancel()


async def in_thread(path: Path, what: str, node: int) -> str:
    return await trio.to_thread.run_sync(partial(control.ask, path, what, node))


async def raw(path: Path, data: bytes) -> bytes:
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(data)
        await stream.send_eof()
        return b"".join([part async for part in stream])


async def test_asked_and_answered(tmp_path: Path) -> None:
    async with serving(tmp_path / "c.sock") as path:
        assert await in_thread(path, "kill", 3) == "killed 3"
        with pytest.raises(control.ControlError, match="cannot fly"):
            await in_thread(path, "fly", 3)
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b'{"do": 1, "node": 1}\n',
        b'{"do": "kill", "node": true}\n',
        b"\xff",
    ],
)
async def test_what_is_no_request_is_answered_so(tmp_path: Path, line: bytes) -> None:
    async with serving(tmp_path / "c.sock") as path:
        assert b'"ok": false' in await raw(path, line)
        assert await in_thread(path, "kill", 1) == "killed 1"


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    async with serving(tmp_path / "c.sock") as path:
        try:
            answer = await raw(path, b"x" * (control.LINE_BYTES_MAX * 4))
        except trio.BrokenResourceError:
            answer = b'"ok": false'  # we were still sending when it hung up
        assert b'"ok": false' in answer
        assert await in_thread(path, "kill", 1) == "killed 1"


async def test_silence_and_hanging_up_do_no_harm(tmp_path: Path) -> None:
    async with serving(tmp_path / "c.sock") as path:
        async with await trio.open_unix_socket(path):
            assert await in_thread(path, "kill", 1) == "killed 1"
        assert await in_thread(path, "kill", 2) == "killed 2"


async def test_a_silent_client_is_hung_up_on(tmp_path: Path, autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        started = trio.current_time()
        nursery.start_soon(control._answer_one, stream, handler)
    assert trio.current_time() - started == pytest.approx(control.ASK_S_MAX)
    await stream.aclose()
    ours.close()


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(control.ControlError, match="the launcher does not answer"):
        control.ask(tmp_path / "c.sock", "kill", 1)


def test_a_launcher_that_does_not_answer_in_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(os.fspath(tmp_path / "c.sock"))
        deaf.listen()
        with pytest.raises(control.ControlError, match="did not answer within 0 s"):
            control.ask(tmp_path / "c.sock", "kill", 1, timeout_s=0.05)
