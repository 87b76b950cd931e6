"""Machines made of network namespaces: their links have limits, and no machine outlives its
program."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from benchmarks.load.usage import Usage, cores
from benchmarks.machines import inside, limits
from benchmarks.machines.limits import BY_SIZE, UNLIMITED, Limit, parse, rate_text
from benchmarks.machines.network import MachinesError, Namespace, Network, network
from benchmarks.machines.relay import Relay
from cluster import child
from runtime.config.fields import Address
from tests.benchmarks.machines.machines_here import skip_without_machines

PORT = 9_000
BITS = 16_000_000
WAIT_S = 10.0


# --- what a limit is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("none", UNLIMITED),
        ("network", BY_SIZE),
        ("network=50mbit", Limit(network=True, bits_per_s=50_000_000)),
        ("network=1gbit", Limit(network=True, bits_per_s=1_000_000_000)),
        ("network=1500kbit", Limit(network=True, bits_per_s=1_500_000)),
        ("egress", Limit(network=True, both_ways=False)),
        ("egress=2mbit", Limit(network=True, bits_per_s=2_000_000, both_ways=False)),
    ],
)
def test_a_limit_is_read_as_it_is_written(text: str, limit: Limit) -> None:
    assert parse(text) == limit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "none=1",
        "network=",
        "network=50",
        "egress=",
        "network=0mbit",
        "network=11gbit",
    ],
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse(text)


def test_without_a_rate_it_goes_by_message_size() -> None:
    """The smaller the messages, the more CPU a byte costs, and the slower a link has to be."""
    rates = [BY_SIZE.bits_for(size) for size in (1, 100, 1_000, 9_999, 10_000, 1_000_000)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    assert Limit(network=True, bits_per_s=7).bits_for(100) == 7
    assert UNLIMITED.bits_for(100) == 0


def test_samples_are_told_the_limit() -> None:
    assert UNLIMITED.label(100) == "none"
    assert parse("network=1500kbit").label(100) == "network 1500kbit"
    assert parse("egress=1500kbit").label(100) == "egress 1500kbit"
    assert [rate_text(bits) for bits in (10**9, 50_000_000, 999)] == ["1gbit", "50mbit", "999bit"]


def usage_of(nodes: float, client: float, others: float) -> Usage:
    """A second in which each of three nodes, the client and all others used that many seconds of
    CPU."""
    return Usage(1.0, (nodes, nodes / 2, 0.0), client, others, (10, 20, 30), (1, 2, 3))


def test_cpu_is_the_limit_where_the_machine_or_one_process_has_no_more() -> None:
    idle = usage_of(0.1, 0.1, 0.0)
    assert not limits.cpu_bound([idle, idle])
    assert limits.cpu_bound([idle, usage_of(0.95, 0.0, 0.0)])
    assert limits.cpu_bound([usage_of(0.0, 0.92, 0.0), idle])
    assert limits.cpu_bound([usage_of(0.1, 0.1, 0.95 * cores())])


def test_shares_of_links_are_of_each_direction() -> None:
    assert limits.link_shares(usage_of(0, 0, 0), 800) == ((0.1, 0.2, 0.3), (0.01, 0.02, 0.03))
    assert limits.link_shares(usage_of(0, 0, 0), 0) == ((), ())


# --- machines ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machines() -> Iterator[Network]:
    skip_without_machines()
    with network(3) as made:
        yield made


def connected(
    source: Namespace, target: Namespace, address: str
) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection from one machine to another, which has this address."""
    with target.entered():
        listener = socket.create_server((address, PORT))
    with source.entered():
        near = socket.create_connection((address, PORT), WAIT_S)
    far, _ = listener.accept()
    listener.close()
    near.settimeout(WAIT_S)
    far.settimeout(WAIT_S)
    return near, far


def bytes_per_s(sender: socket.socket, receiver: socket.socket, seconds: float) -> float:
    """After a second for the bucket's burst and for what waits in queues."""

    def pour() -> None:
        try:
            while True:
                sender.sendall(bytes(64 * 1024))
        except OSError:
            pass  # the receiver has seen enough

    pouring = threading.Thread(target=pour)
    pouring.start()
    began, count, marked = time.monotonic(), 0, 0.0
    while (now := time.monotonic()) < began + 1.0 + seconds:
        received = len(receiver.recv(256 * 1024))
        if now >= began + 1.0:
            marked = marked or now
            count += received
    receiver.close()
    pouring.join(WAIT_S)  # its connection was reset
    sender.close()
    return count / (now - marked)


TRIES_MAX = 5


@pytest.mark.parametrize("way", ["sends", "receives"])
def test_a_link_lets_through_what_it_is_limited_to(machines: Network, way: str) -> None:
    """In each direction, as far as frames' headers allow; without a limit, far more. Never more
    than the limit; less if this machine is busy, so it may try again."""
    machine, clients = machines.machines[0], machines.clients
    address = machines.addresses[0]
    shares: list[float] = []
    machines.limit(BITS)
    try:
        while len(shares) < TRIES_MAX and not any(share > 0.9 for share in shares):
            near, far = connected(clients, machine, address)
            sender, receiver = (near, far) if way == "receives" else (far, near)
            shares.append(bytes_per_s(sender, receiver, 2.0) / (BITS / 8))
    finally:
        machines.limit(0)
    assert 0.9 < max(shares) <= 1.05, shares
    near, far = connected(clients, machine, address)
    assert bytes_per_s(near, far, 0.1) > 2 * BITS / 8


def test_a_link_limited_where_it_sends_receives_as_fast_as_it_can(machines: Network) -> None:
    machine, clients = machines.machines[0], machines.clients
    machines.limit(BITS, both_ways=False)
    try:
        near, far = connected(clients, machine, machines.addresses[0])
        assert bytes_per_s(near, far, 0.1) > 2 * BITS / 8
        near, far = connected(clients, machine, machines.addresses[0])
        assert bytes_per_s(far, near, 2.0) <= 1.05 * BITS / 8
        machines.limit(BITS)
        near, far = connected(clients, machine, machines.addresses[0])
        assert bytes_per_s(near, far, 2.0) <= 1.05 * BITS / 8
    finally:
        machines.limit(0)
    near, far = connected(clients, machine, machines.addresses[0])
    assert bytes_per_s(near, far, 0.1) > 2 * BITS / 8


def test_machines_reach_each_other(machines: Network) -> None:
    first, _, third = machines.machines
    near, far = connected(first, third, machines.addresses[2])
    near.sendall(b"hello")
    assert far.recv(5) == b"hello"
    near.close()
    far.close()


async def test_a_relay_reaches_a_loopback_inside(machines: Network) -> None:
    """As `evenkeel status` reaches the HTTP port of a node on such a machine."""
    machine = machines.machines[1]
    address = Address("127.0.0.1", PORT + 1)
    with machine.entered():
        listener = socket.create_server(address)
    listener.setblocking(False)
    inner = trio.SocketListener(trio.socket.from_stdlib_socket(listener))

    async def answer(stream: trio.SocketStream) -> None:
        data = b""
        async for more in stream:
            data += more
        await stream.send_all(data.upper())

    async with trio.open_nursery() as nursery:
        await nursery.start(Relay(address, machine).run)
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as serving, inner:
                serving.start_soon(trio.serve_listeners, answer, [inner])
                async with await trio.open_tcp_stream(*address) as stream:
                    await stream.send_all(b"hello")
                    await stream.send_eof()
                    assert b"".join([data async for data in stream]) == b"HELLO"
                serving.cancel_scope.cancel()
            async with await trio.open_tcp_stream(*address) as refused:
                assert not [data async for data in refused], "nobody is there: that is told"
        nursery.cancel_scope.cancel()


def test_what_a_tool_says_is_told(machines: Network) -> None:
    with pytest.raises(MachinesError, match=r"ip, in machine 1: .*nowhere"):
        machines.machines[0].run("ip", ["link set nowhere up"])


# --- the end -------------------------------------------------------------------------------------

KEEPER = f"""
import os, signal, subprocess, sys, time
from benchmarks.machines.network import network
signal.signal(signal.SIGINT, signal.default_int_handler)
with network(3) as made:
    made.limit({BITS})
    node = [sys.executable, "-I", "-S", {child.__file__!r}, str(os.getpid())]
    node += [sys.executable, "-I", "-S", {inside.__file__!r}, made.machines[0].path]
    process = subprocess.Popen([*node, {sys.executable!r}, "-c", "import time; time.sleep(600)"])
    with made.clients.entered():
        kept = [*made.machines, made.clients, made.switch]
        print(process.pid, *(os.fstat(one.descriptor).st_ino for one in kept), flush=True)
        time.sleep(600)
"""


def in_use() -> set[int]:
    """Every network namespace that has a name, or that a process is in or holds open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        for link in (process / "ns" / "net", *_listed(process / "fd")):
            try:
                name = os.readlink(link)
            except OSError:
                continue  # it has ended meanwhile, or was no link
            if name.startswith("net:["):
                found.add(int(name[5:-1]))
    return found | {path.stat().st_ino for path in _listed(Path("/run/netns"))}


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_end_leaves_a_machine_behind(machines: Network, number: signal.Signals) -> None:
    """A namespace is gone when no process is in it, none holds it open, and it has no name."""
    assert machines.machines
    interfaces = sorted(os.listdir("/sys/class/net"))
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(child.__file__).parent.parent)},
    ) as keeper:
        assert keeper.stdout is not None
        node, *namespaces = map(int, keeper.stdout.readline().split())
        assert len(namespaces) == 5
        deadline = time.monotonic() + WAIT_S
        while os.readlink(f"/proc/{node}/ns/net") != f"net:[{namespaces[0]}]":
            assert time.monotonic() < deadline, "the node is not inside its machine"
            time.sleep(0.01)
        assert set(namespaces) <= in_use()
        keeper.send_signal(number)
    while left := set(namespaces) & in_use():
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.01)
    assert sorted(os.listdir("/sys/class/net")) == interfaces
