"""Links that cannot be opened: the journal has the reason when it is new, and not at every try."""

import io
import json
import socket
from typing import Any

import pytest
import trio

from runtime.config.fields import Address
from runtime.network.connect import TrioDialer, connect, in_words
from runtime.network.stream import TcpStream
from runtime.system.journal import Journal


def unused() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as port:
        return Address(*port.getsockname())


async def tries(dialer: TrioDialer, address: Address, times: int) -> list[TcpStream | None]:
    made: list[TcpStream | None] = []
    for _ in range(times):
        await dialer._dial(address, made.append)
    return made


async def test_a_reason_is_told_once_and_its_end_too() -> None:
    stream = io.StringIO()
    address = unused()

    def told() -> list[dict[str, Any]]:
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    async with trio.open_nursery() as nursery:
        dialer = TrioDialer(nursery, Journal("info", stream))
        assert await tries(dialer, address, 20) == [None] * 20
        (line,) = told()
        assert line["event"] == "no connection to a peer"
        assert line["level"] == "warning"
        assert line["address"] == str(address)
        assert line["reason"] == "connection refused: nothing listens there"
        with socket.create_server(address):
            made = await tries(dialer, address, 3)
        assert [one is not None for one in made] == [True] * 3
        for one in made:
            assert one is not None
            one.close()
        assert [one["event"] for one in told()[1:]] == ["connected to a peer again"]
        await tries(dialer, address, 5)
        assert [one["level"] for one in told()] == ["warning", "info", "warning"]


async def test_a_name_that_nobody_knows() -> None:
    reason = await connect(Address("no-such-host.invalid", 1))
    assert isinstance(reason, str)
    assert reason.startswith("the name cannot be resolved: ")


def test_many_addresses_of_one_name_give_each_reason_once() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    away = OSError(113, "No route to host")
    error = OSError("all attempts to connect failed")
    error.__cause__ = ExceptionGroup("", [refused, refused, away])
    assert in_words(error) == "connection refused: nothing listens there; No route to host"


@pytest.mark.parametrize("error", [OSError("odd"), OSError(5, "Input/output error")])
def test_other_errors_keep_their_words(error: OSError) -> None:
    assert in_words(error) in ("odd", "Input/output error")
