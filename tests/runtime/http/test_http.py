"""The HTTP side: bounded in size, time and number, and no back door to the masters."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MemoryReceiveStream, MockClock, memory_stream_pair

from paxos.ids import REGISTRY_GROUP, GroupId
from runtime.admin.balancer import PROPOSE_TIMEOUT_S, BalancerAdmin
from runtime.admin.inspection import Admin
from runtime.http.server import (
    REQUEST_BYTES_MAX,
    REQUEST_TIMEOUT_S,
    SEND_TIMEOUT_S,
    Answer,
    HttpServer,
    Send,
    Stream,
    json_answer,
)
from tests.runtime.offices import GROUPS, Cluster, everything_on

GIVE_UP_S = 60.0

Bugs = list[tuple[str, Exception]]


class Reply:
    """An answer as a client reads it, until the connection ends."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("ascii").split("\r\n")
        self.status = int(lines[0].split()[1]) if data else 0
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:])

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


async def exchange(
    server: HttpServer, *pieces: bytes, hang_up: bool = True, pause_s: float = 0
) -> Reply:
    """Send these pieces on one connection and read the answer."""
    client, node = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, node)
        with trio.fail_after(GIVE_UP_S):
            with suppress(trio.BrokenResourceError):  # the server may have closed it already
                for piece in pieces:
                    await client.send_all(piece)
                    await trio.sleep(pause_s)
                if hang_up:
                    await client.send_eof()
            data = await read_all(client.receive_stream)
    return Reply(data)


async def read_all(stream: MemoryReceiveStream) -> bytes:
    data = b""
    try:
        while more := await stream.receive_some():
            data += more
    except trio.BrokenResourceError:
        return data
    return data


def request(method: str, path: str, body: bytes | None = None) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body or b"")


# -- the server -----------------------------------------------------------------------------------


def serving(**routes: Callable[[Any], Awaitable[Answer | Stream]]) -> tuple[HttpServer, Bugs]:
    """`get_x=route` serves GET /x."""
    bugs: Bugs = []
    table = {}
    for name, route in routes.items():
        method, _, path = name.partition("_")
        table[method.upper(), f"/{path}"] = route
    return HttpServer(table, lambda what, error: bugs.append((what, error))), bugs


async def echo(body: Any) -> Answer:
    return json_answer(body)


async def test_a_request_gets_its_answer_and_the_connection_ends() -> None:
    server, bugs = serving(get_x=echo, post_x=echo)
    reply = await exchange(server, request("GET", "/x"))
    assert (reply.status, reply.body) == (200, b"null\n")
    assert reply.headers["connection"] == "close"
    assert reply.headers["content-length"] == "5"
    reply = await exchange(server, request("POST", "/x", b'{"a": 1}'))
    assert reply.json() == {"a": 1}
    assert bugs == []


async def test_a_query_is_no_part_of_the_path() -> None:
    server, _ = serving(get_x=echo)
    assert (await exchange(server, request("GET", "/x?y=1"))).status == 200


async def test_an_empty_body_is_an_empty_object() -> None:
    server, _ = serving(post_x=echo)
    assert (await exchange(server, request("POST", "/x", b""))).json() == {}


@pytest.mark.parametrize(("method", "path"), [("POST", "/x"), ("DELETE", "/x"), ("GET", "/y")])
async def test_what_there_is_not_is_told_with_what_there_is(method: str, path: str) -> None:
    server, _ = serving(get_x=echo)
    reply = await exchange(server, request(method, path, b"" if method == "POST" else None))
    assert reply.status == 404
    assert reply.json()["error"] == f"no {method} {path}; there is GET /x"


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b"null", b"\xff", b"NaN?", b'{"a":' * 20_000, b"9" * 5_000]
)
async def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    server, bugs = serving(post_x=echo)
    reply = await exchange(server, request("POST", "/x", body))
    assert reply.status == 400
    assert "JSON" in reply.json()["error"]
    assert bugs == []


async def test_a_body_that_is_too_large_is_refused() -> None:
    """Whatever length was announced, no more is read."""
    server, _ = serving(post_x=echo)
    body = b"x" * (REQUEST_BYTES_MAX + 1)
    reply = await exchange(server, request("POST", "/x", body))
    assert reply.status == 400
    assert str(REQUEST_BYTES_MAX) in reply.json()["error"]
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    reply = await exchange(server, head + 5 * chunk)
    assert reply.status == 400


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff" * 10 + b"\r\n\r\n",
        b"GET /x HTTP/1.1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000,
        b"\0" * 100_000,
    ],
)
async def test_what_is_not_http_is_refused(data: bytes) -> None:
    server, bugs = serving(get_x=echo)
    assert (await exchange(server, data)).status == 400
    assert bugs == []


async def test_who_hangs_up_in_the_middle_costs_nothing() -> None:
    server, bugs = serving(get_x=echo)
    for data in (
        b"",
        b"GET /x",
        request("POST", "/x", b"whole body")[:-5],
    ):
        assert (await exchange(server, data)).status in (0, 400)
    assert bugs == []


@pytest.mark.parametrize("waits", [True, False])
async def test_nothing_is_changed_for_a_client_that_has_gone(waits: bool) -> None:
    """A node that was stopped reads a request late, when its sender has already asked another
    node."""
    done = trio.Event()

    async def change(_: Any) -> Answer:
        done.set()
        return json_answer({})

    server, bugs = serving(post_change=change)
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    await theirs.send_all(request("POST", "/change", b"{}"))
    if not waits:
        await theirs.aclose()
    await server.handle(ours)
    await theirs.aclose()
    assert done.is_set() == waits
    assert not bugs


async def test_a_slow_client_has_its_time_and_no_more(autojump_clock: MockClock) -> None:
    """Half a request, and then nothing, or a byte now and then."""
    server, bugs = serving(get_x=echo)
    began = trio.current_time()
    assert (await exchange(server, b"GET /x HT", hang_up=False)).status == 0
    assert trio.current_time() - began == REQUEST_TIMEOUT_S
    drops = [b"G", *[b"E"] * 30]
    assert (await exchange(server, *drops, hang_up=False, pause_s=1)).status == 0
    assert bugs == []


async def test_a_client_that_does_not_read_has_its_time_too(autojump_clock: MockClock) -> None:
    """A real socket fills up at some point; here it is full from the beginning."""
    server, _ = serving(get_x=echo)
    client, node = memory_stream_pair()

    async def never(_data: object) -> None:
        await trio.sleep_forever()

    node.send_stream.send_all = never
    await client.send_all(request("GET", "/x"))
    await server.handle(node)
    assert trio.current_time() >= REQUEST_TIMEOUT_S


async def test_a_stream_goes_on_as_long_as_it_is_read(autojump_clock: MockClock) -> None:
    """For longer than any request may take."""

    async def run(send: Send) -> None:
        for number in range(10):
            await trio.sleep(REQUEST_TIMEOUT_S)
            await send(f"piece {number}\n".encode())

    async def streams(_body: Any) -> Stream:
        return Stream("text/plain", run)

    server, bugs = serving(get_x=streams)
    client, node = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, node)
        await client.send_all(request("GET", "/x"))
        reply = Reply(await read_all(client.receive_stream))
    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.body.count(b"piece") == 10
    assert reply.body.endswith(b"0\r\n\r\n")
    assert bugs == []


async def test_a_stream_that_is_not_read_is_cut_off(autojump_clock: MockClock) -> None:
    """Nothing queues for a slow reader: it had its time for one piece."""
    client, node = memory_stream_pair()
    sent = 0

    async def run(send: Send) -> None:
        nonlocal sent
        while True:
            await trio.sleep(1)
            await send(b"piece")
            sent += 1
            if sent == 3:
                node.send_stream.send_all = never

    async def never(_data: object) -> None:
        await trio.sleep_forever()

    async def streams(_body: Any) -> Stream:
        return Stream("text/plain", run)

    server, bugs = serving(get_x=streams)
    await client.send_all(request("GET", "/x"))
    await server.handle(node)
    assert sent == 3
    assert trio.current_time() == 4 + SEND_TIMEOUT_S
    assert bugs == []
    await read_all(client.receive_stream)  # the connection is closed


async def test_a_query_is_given_to_the_route() -> None:
    server, _ = serving(get_x=echo)
    reply = await exchange(server, request("GET", "/x?name=%3Cb%3E&y="))
    assert reply.json() == {"name": "<b>"}
    reply = await exchange(server, request("GET", "/x?" + "&".join(f"a{n}=1" for n in range(40))))
    assert reply.status == 400


async def test_requests_of_other_sites_are_refused() -> None:
    """The rules are those of test_http_guard.py; this shows that the server applies them."""
    server, _ = serving(get_x=echo, post_x=echo)
    for method in ("GET", "POST"):
        body = b"{}" if method == "POST" else None
        data = request(method, "/x", body).replace(b"Host: localhost", b"Host: evil.example")
        reply = await exchange(server, data)
        assert reply.status == 403
        assert "evil.example" in reply.json()["error"]
    form = request("POST", "/x", b"{}").replace(b"application/json", b"text/plain")
    assert (await exchange(server, form)).status == 403
    for reply in (await exchange(server, form), await exchange(server, request("GET", "/x"))):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in reply.headers


async def test_a_bug_in_a_route_costs_one_connection() -> None:
    async def fails(_body: Any) -> Answer:
        raise KeyError("a bug")

    server, bugs = serving(get_x=fails, get_y=echo)
    assert (await exchange(server, request("GET", "/x"))).status == 0
    assert [what for what, _ in bugs] == ["HTTP"]
    assert (await exchange(server, request("GET", "/y"))).status == 200


# -- administration -------------------------------------------------------------------------------


class Operator:
    """An operator with curl, at one node of a cluster."""

    def __init__(self, cluster: Cluster, node: int = 1) -> None:
        self.cluster, self.node = cluster, node
        registry = CollectorRegistry()
        Gauge("evenkeel_test", "A metric.", registry=registry).set(7)
        self.why_not_ready = ""
        self.bugs: Bugs = []
        admin = Admin(registry, status=lambda: {"node": node}, not_ready=lambda: self.why_not_ready)
        office = cluster[node]
        balancer = BalancerAdmin(
            office.client,
            office.loop,
            office.planner,
            now=office.member.engine.now,
            wake=cluster.net.settle,
        )
        routes = {**admin.routes(), **balancer.routes()}
        self._server = HttpServer(routes, lambda *bug: self.bugs.append(bug))

    async def get(self, path: str) -> Reply:
        return await exchange(self._server, request("GET", path))

    async def post(self, path: str, body: object) -> Reply:
        reply = await exchange(self._server, request("POST", path, json.dumps(body).encode()))
        assert self.bugs == []
        return reply

    async def refused(self, path: str, body: object) -> str:
        reply = await self.post(path, body)
        assert reply.status == 400, reply.body
        return str(reply.json()["error"])

    def placement(self) -> dict[int, int]:
        return dict(self.cluster[self.node].registry.placement)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.until(cluster.is_placed)
    cluster.advance(500)
    for office in cluster.offices.values():
        office.loop.machine = None  # masters stay where they are
    return cluster


@pytest.fixture
def operator(cluster: Cluster) -> Operator:
    return Operator(cluster)


async def test_the_routes_that_only_look(operator: Operator) -> None:
    assert (await operator.get("/livez")).body == b"ok\n"
    ready = await operator.get("/readyz")
    assert (ready.status, ready.body) == (200, b"ok\n")
    operator.why_not_ready = "group 3 has no master yet"
    ready = await operator.get("/readyz")
    assert (ready.status, ready.body) == (503, b"group 3 has no master yet\n")
    assert (await operator.get("/status")).json() == {"node": 1}
    metrics = await operator.get("/metrics")
    (family,) = text_string_to_metric_families(metrics.body.decode())
    assert (family.name, family.samples[0].value) == ("evenkeel_test", 7)


async def at_once(work: Callable[[], object], *, limiter: trio.CapacityLimiter) -> object:
    return work()


@pytest.mark.parametrize("node", [1, 2, 3])
async def test_placement_is_asked_of_any_node(
    cluster: Cluster, node: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's own copy of the registry stands still here: it waits for it for the allowed
    time. The test's clock does not see threads, so what a thread would do is done at once."""
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    operator = Operator(cluster, node)
    version = cluster[node].registry.versions.placement
    reply = await operator.post("/admin/placement", {"all_on": 2})
    assert (reply.status, reply.json()) == (200, {"version": version + 1})
    cluster.advance(40)
    assert operator.placement() == everything_on(2)
    reply = await operator.post("/admin/placement", {"even": True})
    assert reply.status == 200
    cluster.advance(40)
    counts = list(operator.placement().values())
    assert sorted(counts.count(one) for one in (1, 2, 3)) == [2, 2, 3]


async def test_a_placement_names_some_groups_and_leaves_the_others(operator: Operator) -> None:
    before = operator.placement()
    reply = await operator.post("/admin/placement", {"placement": {"3": 1, "0": 2}})
    assert reply.status == 200
    operator.cluster.advance(40)
    assert operator.placement() == {**before, 3: 1, 0: 2}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, 'expected {"all_on": node}'),
        ({"even": 1}, "expected"),
        ({"all_on": 9}, "that node is not registered; there are 1, 2, 3"),
        ({"all_on": "1"}, "not registered"),
        ({"all_on": True}, "not registered"),
        ({"all_on": None}, "not registered"),
        ({"placement": [1]}, "expected"),
        ({"placement": {"99": 1}}, f"there are 0 to {GROUPS}"),
        ({"placement": {"-1": 1}}, "there are 0 to"),
        ({"placement": {"one": 1}}, "there are 0 to"),
        ({"placement": {"\u00b2": 1}}, "there are 0 to"),
        ({"placement": {"9" * 5_000: 1}}, "there are 0 to"),
        ({"placement": {"1": 4}}, "not registered"),
        ({"even": True, "expected_version": "7"}, "expected_version must be a number"),
        ({"even": True, "expected_version": 2**70}, "expected_version must be a number"),
        ({"even": True, "expected_version": -1}, "expected_version must be a number"),
        ({"even": True, "expected_version": True}, "expected_version must be a number"),
    ],
)
async def test_a_placement_that_makes_no_sense_is_refused(
    operator: Operator, body: object, why: str
) -> None:
    before = operator.placement()
    assert why in await operator.refused("/admin/placement", body)
    operator.cluster.advance(40)
    assert operator.placement() == before


async def test_a_placement_somebody_else_has_changed_is_a_conflict(operator: Operator) -> None:
    version = operator.cluster[1].registry.versions.placement
    good = {"all_on": 1, "expected_version": version}
    assert (await operator.post("/admin/placement", good)).status == 200
    operator.cluster.advance(40)
    reply = await operator.post("/admin/placement", {**good, "all_on": 3})
    assert reply.status == 409
    assert "version" in reply.json()["error"]
    assert operator.placement() == everything_on(1)


@pytest.mark.parametrize("group", [None, 3])
async def test_the_balancer_is_paused_and_resumed(operator: Operator, group: int | None) -> None:
    registry = operator.cluster[1].registry
    body = {"paused": True} if group is None else {"paused": True, "group": group}
    assert (await operator.post("/admin/balancer", body)).status == 200
    operator.cluster.advance(40)
    assert registry.paused == (group is None)
    assert registry.paused_groups == (set() if group is None else {GroupId(group)})
    assert (await operator.post("/admin/balancer", {**body, "paused": False})).status == 200
    operator.cluster.advance(40)
    assert not registry.paused
    assert not registry.paused_groups


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"paused": 1},
        {"paused": "true"},
        {"paused": True, "group": "1"},
        {"paused": True, "group": True},
        {"paused": True, "group": -1},
        {"paused": True, "group": 2**40},
    ],
)
async def test_a_pause_that_makes_no_sense_is_refused(operator: Operator, body: object) -> None:
    assert "paused" in await operator.refused("/admin/balancer", body)


async def test_a_group_that_does_not_exist_is_the_registrys_to_refuse(operator: Operator) -> None:
    reply = await operator.post("/admin/balancer", {"paused": True, "group": 99})
    assert reply.status == 409


async def test_without_a_majority_there_is_no_change(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    """The master proposes and nobody votes: after a while the answer says so. The change may still
    be made."""
    master = cluster.masters()[0]
    assert master is not None
    for other in cluster.net.others(master):
        cluster.net.crash(other.node)
    operator = Operator(cluster, master)
    began = trio.current_time()
    reply = await operator.post("/admin/placement", {"all_on": 1})
    assert reply.status == 503
    assert "is a majority of the nodes up?" in reply.json()["error"]
    assert "the change may still happen" in reply.json()["error"]
    assert trio.current_time() - began == PROPOSE_TIMEOUT_S
    operator.cluster.advance(10_000)
    assert (await operator.post("/admin/placement", {"all_on": 1})).status == 503


async def test_a_node_that_finds_no_master_of_the_registry_says_so_in_the_end(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    master = cluster.masters()[0]
    assert master is not None
    last, *others = cluster.net.others(master)
    cluster.net.crash(master)
    for other in others:
        cluster.net.crash(other.node)
    cluster.advance(10_000)
    began = trio.current_time()
    reply = await Operator(cluster, last.node).post("/admin/balancer", {"paused": True})
    assert reply.status == 503
    assert trio.current_time() - began == PROPOSE_TIMEOUT_S


async def test_who_asks_between_a_crash_and_the_election_waits_for_the_new_master(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    """An operator's requests in the seconds after the loss of the registry's master used to
    fail."""
    master = cluster.masters()[0]
    assert master is not None
    cluster.net.crash(master)
    one, *_ = cluster.net.others(master)
    for _ in range(40):  # until its link is known to be lost, and its lease is over
        cluster.advance(100)
        if one.engine.master(REGISTRY_GROUP) is None:
            break
    replies: list[Reply] = []

    async def ask() -> None:
        operator = Operator(cluster, one.node)
        replies.append(await operator.post("/admin/balancer", {"paused": True}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.05)
        assert replies == []
        cluster.until(lambda: cluster.masters()[0] is not None)
        await trio.sleep(1)
    assert [reply.status for reply in replies] == [200]
    assert cluster[one.node].registry.paused
