"""The console of a whole node: what a browser reads, and what another node gets."""

import json
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import memory_stream_pair

from node import Node
from paxos.codec import PeerError
from paxos.ids import GroupId, NodeId
from runtime.console.hub import WATCHERS_MAX
from runtime.console.messages import Acting, Ask, Data, State, What, decode, encode_ask, encode_tell
from runtime.http.server import HttpServer
from runtime.network.dataplane import TICK_S
from tests.runtime.one_node import one_node, run_until

GIVE_UP_S = 30.0
GROUPS = 3
OTHER = NodeId(2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with one_node(tmp_path, groups=GROUPS) as node:
        run_until(node, lambda: not node.shell.not_ready() and node.registry.topics)
        yield node


async def rounds(node: Node) -> None:
    """Time passes: leases are renewed, and written data becomes durable."""
    while True:
        node.shell.tick()
        if select.select([node.wakeup.fd], [], [], 0)[0]:
            node.engine.on_durable()
            node.shell.end_of_round()
        await trio.sleep(TICK_S)


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[HttpServer]:
    with trio.fail_after(GIVE_UP_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.console.run)
            nursery.start_soon(rounds, node)
            yield HttpServer(node.console.routes(), node.journal.bug)
            nursery.cancel_scope.cancel()


class Page:
    """What a browser does with /console/events."""

    def __init__(self, server: HttpServer, nursery: trio.Nursery) -> None:
        self.stream, other_end = memory_stream_pair()
        nursery.start_soon(server.handle, other_end)
        self._data = b""

    async def ask(self, path: str) -> None:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\r\n"
        await self.stream.send_all(head.encode())

    async def read_until(self, mark: bytes) -> bytes:
        while mark not in self._data:
            more = await self.stream.receive_some()
            assert more, self._data
            self._data += more
        taken, _, self._data = self._data.partition(mark)
        return taken

    async def head(self) -> bytes:
        return (await self.read_until(b"\r\n\r\n")).lower()

    async def event(self) -> tuple[str, Any]:
        """The next event, with the chunk sizes of HTTP around it removed."""
        await self.read_until(b"event: ")
        name, _, data = (await self.read_until(b"\n\n")).decode().partition("\ndata: ")
        return name, json.loads(data)


async def body(server: HttpServer, path: str) -> tuple[int, Any]:
    async with trio.open_nursery() as nursery:
        page = Page(server, nursery)
        await page.ask(path)
        head = await page.head()
        data = page._data
        while more := await page.stream.receive_some():
            data += more
    return int(head.split()[1]), json.loads(data)


async def test_a_browser_reads_the_picture_and_then_what_changes(node: Node) -> None:
    async with serving(node) as server, trio.open_nursery() as nursery:
        page = Page(server, nursery)
        await page.ask("/console/events")
        head = await page.head()
        assert head.startswith(b"http/1.1 200")
        assert b"content-type: text/event-stream" in head
        assert b"cache-control: no-store" in head
        assert b"x-content-type-options: nosniff" in head
        name, told = await page.event()
        assert name == "all"
        sections = told["all"]
        assert sections["cluster"]["me"] == 1
        assert list(sections["groups"]) == [str(group) for group in range(GROUPS + 1)]
        master, certain, ideal, why = sections["groups"]["1"][:4]
        assert (master, certain, ideal, why) == (1, 1, 1, "in-place")
        assert len(sections["leases"]) == GROUPS + 1
        assert sections["nodes"]["1"]["answers"]
        assert sections["topics"]["__evenkeel_load"][:2] == [1, 1]
        number = told["number"]
        for later in range(1, 4):
            name, told = await page.event()
            assert (name, told["number"]) == ("change", number + later)
            assert "cluster" in told["change"], "the time goes on"
            assert "groups" not in told["change"], "nothing has changed there"
        await node.console.hub.close()
        while name != "bye":
            name, told = await page.event()
        assert (await page.read_until(b"0\r\n\r\n")) is not None, "an end in order"
        nursery.cancel_scope.cancel()
    assert node.console.hub.watchers == 0


async def test_a_place_that_is_taken_is_told(node: Node) -> None:
    async with serving(node) as server:
        node.console.hub.watchers = WATCHERS_MAX
        status, told = await body(server, "/console/events")
        assert status == 503
        assert "too many" in told["error"]
        node.console.hub.watchers = 0


async def test_one_topic_and_one_consumer_group_are_looked_up_by_name(node: Node) -> None:
    async with serving(node) as server:
        status, told = await body(server, "/console/topic?name=__evenkeel_load")
        assert (status, told["name"]) == (200, "__evenkeel_load")
        assert told["partitions"] == [[0, 0, 1, None, None]], "nobody watches: no offsets are known"
        for path in ("/console/topic?name=%3Cb%3E", "/console/consumers?name=none"):
            assert (await body(server, path))[0] == 404
        for path in ("/console/topic", "/console/consumers?nam=x", "/console/topic?" + "a=1&" * 20):
            assert (await body(server, path))[0] == 400


class Told:
    """What this node reports to another one."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[Ask | State | Data] = []

        def console(to: NodeId, data: bytes) -> None:
            assert to == OTHER
            self.said.append(decode(memoryview(data)))

        monkeypatch.setattr(node.peers, "console", console)


async def test_another_node_is_told_what_it_asks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(node, monkeypatch)
    hear = node.peers.on_console
    async with serving(node):
        hear(OTHER, memoryview(encode_ask(Ask(What.STATE))))
        (state,) = told.said
        assert isinstance(state, State)
        assert [one.group for one in state.acting] == list(range(GROUPS + 1))
        assert state.not_ready == ""
        hear(OTHER, memoryview(encode_ask(Ask(What.DATA))))
        while len(told.said) < 2:  # noqa: ASYNC110 (a task of the console's)
            await trio.sleep(0.01)
        data = told.said[1]
        assert isinstance(data, Data)
        assert [one.topic for one in data.ends] == ["__evenkeel_load"]
        with pytest.raises(PeerError):
            hear(OTHER, memoryview(b"\x07\x07"))


async def test_what_another_node_says_is_believed_about_itself(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was elected in a later epoch, of which this node's own copy has not heard yet."""
    told = Told(node, monkeypatch)
    console, now = node.console, node.engine.now()
    hear = node.peers.on_console
    hear(OTHER, memoryview(encode_ask(Ask(What.STATE))))
    state = told.said[0]
    assert isinstance(state, State)
    later = Acting(2, 900, state.acting[2].epoch + 1, 0)
    earlier = Acting(3, 900, 0, 0)
    claim = attrs.evolve(state, acting=(later, earlier))
    hear(OTHER, memoryview(encode_tell(claim)))
    sections = await console._view.quick(now)
    assert sections["groups"]["2"][:2] == [2, 1]
    assert sections["groups"]["3"][:2] == [1, 0], "our own copy knows better, and nobody says so"
    assert node.engine.master(GroupId(2)) == 1
