"""Links under mutual TLS over real sockets: every wrong certificate is refused with a reason, and
bytes that are changed or sent again change nothing."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import attrs
import pytest

from paxos.ids import NodeId, Slot
from paxos.messages import Learn
from runtime.config.fields import ConfigError
from runtime.peers.peers import GREETING_S, UNGREETED_MAX
from runtime.peers.security import links_of
from tests.certs import Certs, now
from tests.runtime.doubles import Recorder
from tests.runtime.links import SECOND_NS, World
from tests.runtime.tls_links import (
    GROUP,
    Worlds,
    accept,
    config,
    encoded,
    greeting,
    message_frame,
    name,
)
from tests.runtime.tls_links import certs as certs  # fixtures
from tests.runtime.tls_links import world as world
from tests.runtime.tls_links import worlds as worlds


def test_a_link_is_up_and_what_is_sent_arrives_in_order(world: World) -> None:
    world.join(1, 2)
    sizes = [10, 0, 5_000, 3_000_000, 20_000, 1] + [300_000] * 5
    sent = [accept(slot, size) for slot, size in enumerate(sizes, start=1)]
    for message in sent:
        world[1].peers.send(NodeId(2), message)
    world.plane.run_until(lambda: len(world[2].handler.messages) == len(sent), world.flush)
    assert [encoded(message) for _, message in world[2].handler.messages] == [*map(encoded, sent)]
    assert world[1].peers.encrypted(NodeId(2))
    assert not world[1].peers.encrypted(NodeId(3)), "there is no link"
    assert world[1].recorder.said("no link to a peer") == []
    world[2].peers.ping(draining=False)
    world.settle()
    assert world[1].handler.clocks != [] or world[2].handler.clocks != []


# -- who is refused -------------------------------------------------------------------------------


class Caller:
    """Connects to the peer port of node 1 as the library does it: by blocking, so in steps."""

    def __init__(self, world: World, context: ssl.SSLContext) -> None:
        self.world = world
        self.sock = world.stranger(1)
        self.sock.setblocking(False)
        self.arrived, self.leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.arrived, self.leaving, server_side=False)
        self.recorded = b""

    def shake(self) -> bool:
        """Whether the handshake is over for this side."""
        for _ in range(50):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.pump()
                continue
            self.pump()
            return True
        return False

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.pump()

    def pump(self) -> None:
        out = self.leaving.read()
        self.recorded += out
        with suppress(OSError):
            self.sock.sendall(out)
        self.world.settle()
        with suppress(OSError):
            self.arrived.write(self.sock.recv(1 << 16))


def context_of(files: tuple[Path, Path] | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(*files)
    return context


def files(certs: Certs, stem: str) -> tuple[Path, Path]:
    return certs.folder / f"{stem}.crt", certs.folder / f"{stem}.key"


def other_authority(certs: Certs, folder: Path) -> tuple[Path, Path]:
    return Certs.new(folder / "others").peer("node-2", name(2))


def self_signed(certs: Certs, folder: Path) -> tuple[Path, Path]:
    return Certs.new(folder / "self", name(2)).authority.write(folder / "copy")


WRONG: dict[str, tuple[Callable[[Certs, Path], tuple[Path, Path] | None], str]] = {
    "another node's": (
        lambda certs, _: files(certs, "node-3"),
        "it says that it is node 2, with node 3's key",
    ),
    "this node's own": (
        lambda certs, _: files(certs, "node-1"),
        "its certificate is this node's own, of node 1 of cluster 'c'",
    ),
    "another cluster's": (
        lambda certs, folder: attrs.evolve(certs, folder=folder).peer("x", name(2, "d")),
        "its certificate is that of node 2 of cluster 'd', and this is node 1 of cluster 'c'",
    ),
    "capitals differ": (
        lambda certs, folder: attrs.evolve(certs, folder=folder).peer("x", name(2, "C")),
        "its certificate is that of node 2 of cluster 'C', and this is node 1 of cluster 'c'",
    ),
    "two nodes'": (
        lambda certs, folder: attrs.evolve(certs, folder=folder).peer("x", name(2), name(3)),
        "its certificate names more than one node",
    ),
    "a wildcard": (
        lambda certs, folder: attrs.evolve(certs, folder=folder).peer("x", "*.c.evenkeel"),
        "its certificate names no node",
    ),
    "expired": (
        lambda certs, folder: attrs.evolve(certs, folder=folder).peer("x", name(2), days=-1),
        "the other side's certificate is refused: certificate has expired",
    ),
    "self-signed": (self_signed, "the other side's certificate is refused: self-signed"),
    "another authority's": (
        other_authority,
        "the other side's certificate is refused: ",
    ),
    "a client's": (
        lambda certs, folder: attrs.evolve(certs, folder=folder).client(name(2)),
        "its certificate names no node: it may be a client's",
    ),
    "none": (lambda *_: None, "the client has shown no certificate"),
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", WRONG)
def test_every_wrong_certificate_is_refused_with_a_reason_and_costs_nobody_else(
    world: World, certs: Certs, tmp_path: Path, which: str, version: ssl.TLSVersion
) -> None:
    world.join(1, 3)
    (tmp_path / "x").mkdir()
    issue, reason = WRONG[which]
    context = context_of(issue(certs, tmp_path))
    context.minimum_version = context.maximum_version = version
    caller = Caller(world, context)
    with suppress(ssl.SSLError):
        if caller.shake():
            caller.send(greeting(2) + message_frame())
    world.settle()
    (told,) = world[1].reasons("peer connection refused")
    assert reason in told
    assert world[1].peers.refused_total == 1
    assert [node for node, _ in world[1].handler.ups] == [3], "nobody came in"
    assert world[1].handler.messages == []
    assert world[1].handler.downs == [], "the links of others go on"
    world[3].peers.send(NodeId(1), accept(1))
    world.settle()
    assert len(world[1].handler.messages) == 1


def test_the_right_certificate_is_let_in_and_frames_count_only_behind_the_greeting(
    world: World, certs: Certs
) -> None:
    caller = Caller(world, context_of(files(certs, "node-2")))
    assert caller.shake()
    assert world[1].handler.ups == []
    caller.send(greeting(2) + message_frame())
    assert world[1].handler.ups == [(2, 1)]
    assert world[1].handler.messages == [(2, Learn(GROUP, Slot(1)))]


def test_the_greeting_must_name_the_cluster_of_the_certificate(world: World, certs: Certs) -> None:
    caller = Caller(world, context_of(files(certs, "node-2")))
    assert caller.shake()
    caller.send(greeting(2, cluster="d"))
    (told,) = world[1].reasons("peer connection refused")
    assert "node 2 belongs to cluster 'd'" in told


def test_plain_text_and_nonsense_are_refused(world: World) -> None:
    stranger = world.stranger()
    stranger.sendall(greeting(2) + message_frame())
    world.settle()
    (told,) = world[1].reasons("peer connection refused")
    assert "this is no TLS" in told
    world[1].clock.advance(2 * SECOND_NS)
    world.stranger().sendall(Random(1).randbytes(5_000))
    world.settle()
    assert world[1].peers.refused_total == 2
    assert world[1].handler.ups == world[1].handler.messages == []


def test_who_has_dialed_sends_nothing_to_another_node_than_it_meant(worlds: Worlds) -> None:
    """An address in [peers] is wrong, or somebody has taken it over: he learns nothing."""
    world = worlds(1, 2, 3)
    accepted, connected = world.tcp.pair()
    connected.setblocking(False)
    world[3].peers.accept(accepted, "127.0.0.1")
    for _ in range(2):
        world[1].peers.greet(world[1].link(2), connected)
        world.settle()
        accepted, connected = world.tcp.pair()
        connected.setblocking(False)
        world[3].peers.accept(accepted, "127.0.0.1")
    told = world[1].reasons("no link to a peer")
    assert told == [
        "its certificate is that of node 3 of cluster 'c', not of node 2 of cluster 'c'"
    ], "once"
    assert world[1].link(2).channel is None
    assert world[1].link(2).dial_at_ns > world[1].clock.boot_ns()
    assert world[3].handler.ups == []
    connected.close()
    world.settle()


@pytest.mark.parametrize("which", ["other authority", "client's", "expired", "silent"])
def test_who_has_dialed_refuses_wrong_certificates_too(
    world: World, certs: Certs, tmp_path: Path, which: str
) -> None:
    accepted, connected = world.tcp.pair()
    connected.setblocking(False)
    world[1].peers.greet(world[1].link(2), connected)
    if which == "silent":
        world.pass_seconds(GREETING_S + 2)
        assert world[1].reasons("no link to a peer") == ["its TLS handshake takes too long"]
        return
    own = attrs.evolve(certs, folder=tmp_path)
    shown, reason = {
        "other authority": (lambda: other_authority(certs, tmp_path), "certificate is refused"),
        "client's": (lambda: own.client(name(2)), "unsuitable certificate purpose"),
        "expired": (lambda: own.peer("x", name(2), days=-1), "certificate has expired"),
    }[which]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*shown())
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(arrived, leaving, server_side=True)
    for _ in range(10):
        world.settle()
        with suppress(OSError):
            arrived.write(accepted.recv(1 << 16))
        with suppress(ssl.SSLError):
            server.do_handshake()
        with suppress(OSError):
            accepted.sendall(leaving.read())
    (told,) = world[1].reasons("no link to a peer")
    assert reason in told
    assert told in world[1].peers.refusals[0], "the console and /readyz say so"


def test_tls_on_a_plain_port_and_the_reverse_say_what_to_do(worlds: Worlds) -> None:
    world = worlds(2, 3)
    world.call(2, 1)
    world.settle()
    (told,) = world[1].reasons("peer connection refused")
    assert told == "it speaks TLS, and this node has no [peer_tls]"
    world.call(1, 3)
    world.settle()
    (told,) = world[3].reasons("peer connection refused")
    assert "this is no TLS" in told
    assert world[3].handler.ups == []


def test_a_crowd_of_strangers_keeps_no_node_out(world: World, certs: Certs) -> None:
    world.join(1, 2)
    crowd = [world.stranger() for _ in range(UNGREETED_MAX)]
    for stranger in crowd:
        stranger.sendall(bytes.fromhex("16030100ff01"))
    world.settle()
    world.connect(3, 1)
    assert (3, 1) in world[1].handler.ups
    world[2].peers.send(NodeId(1), accept(1))
    world.settle()
    assert len(world[1].handler.messages) == 1
    world.pass_seconds(GREETING_S + 2)
    assert world[1].peers.connected(NodeId(2))


# -- on the way -----------------------------------------------------------------------------------


class Between:
    """Somebody on the way: sees every byte that node 1 sends to node 2, and may change it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.accepted, self.to_two = world.tcp.pair()
        self.from_one, self.dialed = world.tcp.pair()
        for sock in (self.to_two, self.dialed):
            sock.setblocking(False)
        world[2].peers.accept(self.accepted, "127.0.0.1")
        world[1].peers.greet(world[1].link(2), self.dialed)
        self.recorded: list[bytes] = []

    def step(self, change: Callable[[bytes], bytes] = lambda data: data) -> None:
        self.world.settle()
        for source, target in ((self.from_one, self.to_two), (self.to_two, self.from_one)):
            with suppress(OSError):
                data = source.recv(1 << 16)
                if source is self.from_one and data:
                    self.recorded.append(data)
                    data = change(data)
                target.sendall(data)
        self.world.settle()

    def up(self) -> "Between":
        for _ in range(20):
            self.step()
            if self.world[2].handler.ups:
                return self
        raise AssertionError("no link")


@pytest.mark.parametrize("seed", range(8))
def test_bytes_that_are_changed_on_the_way_change_nothing_but_end_the_link(
    world: World, seed: int
) -> None:
    between, dice = Between(world).up(), Random(seed)
    world[1].peers.send(NodeId(2), accept(1))
    between.step()
    assert len(world[2].handler.messages) == 1

    def flipped(data: bytes) -> bytes:
        at = dice.randrange(5, len(data))  # behind the head: a length may make it wait instead
        return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]

    world[1].peers.send(NodeId(2), accept(2))
    between.step(flipped)
    world[1].peers.send(NodeId(2), accept(3))
    between.step()
    assert [message.slot for _, message in world[2].handler.messages] == [1]
    (reason,) = world[2].reasons("peer down")
    assert "TLS" in reason


@pytest.mark.parametrize("how", ["twice", "left out", "swapped"])
def test_records_that_are_repeated_left_out_or_moved_end_the_link(world: World, how: str) -> None:
    between = Between(world).up()
    kept: list[bytes] = []

    def held(data: bytes) -> bytes:
        kept.append(data)
        return b""

    for slot in (1, 2):
        world[1].peers.send(NodeId(2), accept(slot))
        between.step(held)
    first, second = kept
    for record in {"twice": (first, first), "left out": (second,), "swapped": (second, first)}[how]:
        with suppress(OSError):
            between.to_two.sendall(record)
        world.settle()
    came = [message.slot for _, message in world[2].handler.messages]
    assert came == ([1] if how == "twice" else [])
    assert len(world[2].reasons("peer down")) == 1


def test_what_was_recorded_is_worth_nothing_on_another_connection(world: World) -> None:
    between = Between(world).up()
    world[1].peers.send(NodeId(2), accept(1))
    between.step()
    replay = world.stranger(2)
    replay.sendall(b"".join(between.recorded))
    world.settle()
    assert len(world[2].handler.messages) == 1
    assert world[2].handler.ups == [(1, 1)]
    (told,) = world[2].reasons("peer connection refused")
    assert "TLS" in told


# -- files ----------------------------------------------------------------------------------------


def test_the_nodes_own_certificate_must_be_its_own(
    worlds: Worlds, certs: Certs, tmp_path: Path
) -> None:
    own = attrs.evolve(certs, folder=tmp_path)
    own.authority.write(tmp_path)
    own.client("alice")
    own.peer("other", name(2, "d"))
    own.node("hosts")
    plane = worlds().plane
    for stem, reason in {
        "alice": "its certificate names no node",
        "other": "it is that of node 2 of cluster 'd', and this is node 2 of cluster 'c'",
        "hosts": "evenkeel cert node NAME --node 2 --cluster c",
    }.items():
        with pytest.raises(ConfigError) as caught:
            links_of(config(2, own, stem), plane, Recorder().journal)
        assert f"peer_tls.certificate = {tmp_path / stem}.crt" in str(caught.value)
        assert reason in str(caught.value)
    (tmp_path / "other.key").chmod(0o644)
    with pytest.raises(ConfigError, match=r"peer_tls.key = .* others than its owner"):
        links_of(config(2, own, "other"), plane, Recorder().journal)


def test_new_certificates_are_taken_over_and_links_go_on(
    worlds: Worlds, certs: Certs, tmp_path: Path
) -> None:
    own = attrs.evolve(certs, folder=tmp_path)
    own.authority.write(tmp_path)
    for node in (1, 2, 3):
        own.peer(f"node-{node}", name(node))
    world = worlds(1, 2, 3, files=own)
    world.join(1, 2)
    contexts = world[1].peers.security.contexts
    assert contexts is not None
    for suffix in ("crt", "key"):
        (tmp_path / f"node-1.{suffix}").unlink()
    own.peer("node-1", name(3))
    contexts.now_loaded(contexts.changed())
    assert "it is that of node 3" in contexts.complaint, "the old ones stay"
    assert contexts.reloads_total == 0
    for suffix in ("crt", "key"):
        (tmp_path / f"node-1.{suffix}").unlink()
    own.peer("node-1", name(1), days=3)
    contexts.now_loaded(contexts.changed())
    assert (contexts.complaint, contexts.reloads_total) == ("", 1)
    assert abs(contexts.expires_s - now().timestamp() - 3 * 86_400) < 3_600
    world[1].peers.send(NodeId(2), accept(1))
    world.settle()
    assert len(world[2].handler.messages) == 1, "on the old link"
    world.join(3, 1)
