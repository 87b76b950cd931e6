"""Links between nodes: who is accepted, what arrives, and what a stranger's bytes cost."""

import socket
import struct
from typing import Any

import attrs
import pytest
import trio

from broker.proposals.intake import HANDING, LATE, Done, FailureReason, NotDone, Outcome
from broker.transfer.messages import Data
from paxos import codec
from paxos import entry as entries
from paxos.ids import MS, Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Commit, Learn
from runtime.config.fields import Address
from runtime.engine.forwarding import FORWARD_TIMEOUT_NS
from runtime.membership.handshake import FORMAT, Hello, Refusal
from runtime.membership.handshake import RefusalReason as RefusedFor
from runtime.network.connect import SILENT_S, TrioDialer
from runtime.network.dataplane import DataPlane
from runtime.network.listener import listen
from runtime.peers.frames import RESULT_BYTES_MAX
from runtime.peers.peers import (
    GREETING_BYTES_MAX,
    GREETING_S,
    PAXOS_FRAME_BYTES,
    UNGREETED_MAX,
    Kind,
)
from tests.runtime.doubles import FakeSystemClock, Recorder, frame
from tests.runtime.links import NOWHERE, SECOND_NS, Node, World, hello_of
from tests.runtime.links import world as world  # a fixture

GROUP = GroupId(1)


def accept(slot: int, size: int = 10) -> Accept:
    entry = entries.batch((bytes([slot % 251]) * size,))
    return Accept(GROUP, Ballot(1, NodeId(1)), Slot(slot), entry, Slot(1), Slot(0))


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


# -- greeting -------------------------------------------------------------------------------------


def test_a_link_is_up_when_both_directions_are(world: World) -> None:
    one, two = world[1], world[2]
    world.connect(1, 2)
    assert two.handler.ups == [(1, 1)]
    assert not one.peers.connected(NodeId(2)), "we can send, and hear nothing"
    assert not two.peers.connected(NodeId(1))
    world.connect(2, 1)
    assert one.peers.connected(NodeId(2))
    assert two.peers.connected(NodeId(1))
    assert not one.peers.connected(NodeId(3))
    assert not one.peers.connected(NodeId(1)), "nobody is connected to itself"


def greeting(hello: Hello) -> bytes:
    return frame(bytes([Kind.HELLO]) + hello.encode())


def greeting_of(node: int, **other: Any) -> bytes:
    return greeting(attrs.evolve(hello_of(node), **other))


def other_format() -> bytes:
    body = hello_of(2).encode()
    return frame(bytes([Kind.HELLO]) + struct.pack(">H", FORMAT + 1) + body[2:])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            greeting(hello_of(2, cluster="other")),
            "node 2 belongs to cluster 'other', node 1 to 'c'",
        ),
        (other_format(), f"it speaks peer format {FORMAT + 1}.{codec.FORMAT}, this node {FORMAT}."),
        (greeting_of(2, to=3), "node 2 looks for node 3, and this is node 1"),
        (greeting_of(2, founding="count = 9"), "node 2 was configured with [groups] count = 9"),
        (
            greeting(hello_of(9)),
            "node 9 is not in this cluster: add it with `evenkeel node",
        ),
        (greeting(hello_of(1)), "another process also claims to be node 1"),
        (greeting(hello_of(-1)), "node -1 is not in this cluster"),
        (frame(bytes([Kind.PAXOS]) + b"hello?"), "it did not greet"),
        (frame(bytes([Kind.HELLO]) + hello_of(2).encode()[:9]), "a greeting that is cut short"),
        (greeting(hello_of(2))[:-1] + b"cc", "a malformed greeting"),
        (frame(b""), "an empty frame"),
        (b"GET / HTTP/1.1\r\nHost: you\r\n\r\n", "at most 2048 allowed"),
        ((GREETING_BYTES_MAX + 1).to_bytes(4, "big"), "at most 2048 allowed"),
        (b"\xff" * 100, "a frame of -1 bytes"),
        (bytes(8), "an empty frame"),
    ],
)
def test_strangers_are_refused_with_a_reason(world: World, data: bytes, reason: str) -> None:
    """And the operator of the stranger can read in the log what to correct."""
    if reason == "a malformed greeting":
        data = len(data[4:]).to_bytes(4, "big") + data[4:]
    stranger = world.stranger()
    stranger.sendall(data)
    world.plane.run_until(lambda: world[1].recorder.lines)
    answer = b""
    while more := stranger.recv(4096):
        answer += more
    (told,) = world[1].reasons("peer connection refused")
    assert reason in told
    if reason.startswith(("node", "it speaks", "another")):  # it can read it in its own log, too
        refusal = Refusal.decode(memoryview(answer)[5:])
        assert (answer[4], refusal.text) == (Kind.REFUSED, told)
    assert world[1].handler.ups == world[1].handler.downs == []


def test_who_never_greets_is_closed(world: World) -> None:
    silent, slow = world.stranger(), world.stranger()
    slow.sendall(b"\0\0")
    world.pass_seconds(GREETING_S)
    assert world[1].recorder.lines == []
    world.pass_seconds(1)
    assert is_closed(silent)
    assert is_closed(slow)
    assert world[1].reasons("peer connection refused") == ["it did not greet in time"]


def test_many_strangers_cost_a_bounded_number_of_sockets(world: World) -> None:
    """They stay connected and still keep no peer out: the oldest of them is closed."""
    world.join(1, 2)
    crowd = [world.stranger() for _ in range(UNGREETED_MAX)]
    newest = world.stranger()
    assert is_closed(crowd[0])
    world.connect(3, 1)
    assert (3, 1) in world[1].handler.ups
    assert is_closed(crowd[1])
    world[2].peers.send(NodeId(1), accept(1))
    world.settle()
    assert len(world[1].handler.messages) == 1
    newest.sendall(frame(b"x"))
    world.settle()
    assert is_closed(newest), "it was there until it said something else than who it is"


def test_refusals_are_logged_once_a_second(world: World) -> None:
    """A misconfigured node tries for ever."""
    for _ in range(5):
        world.stranger().sendall(b"\xff" * 4)
        world.settle()
    world[1].clock.advance(SECOND_NS)
    world.stranger().sendall(b"\xff" * 4)
    world.settle()
    told = world[1].recorder.said("peer connection refused")
    assert [line["refused"] for line in told] == [1, 6]


def test_a_newer_connection_replaces_the_older(world: World) -> None:
    """The peer has restarted, and we have not heard of the end of its old connection."""
    old, new = world.stranger(), world.stranger()
    old.sendall(greeting(hello_of(2)))
    world.settle()
    new.sendall(greeting(hello_of(2, incarnation=2)))
    world.settle()
    assert is_closed(old)
    assert world[1].handler.ups == [(2, 1), (2, 2)]
    assert world[1].handler.downs == [], "it was never gone"
    new.sendall(message_frame())
    world.settle()
    assert world[1].handler.messages == [(2, Learn(GROUP, Slot(1)))]


def message_frame() -> bytes:
    out: list[Any] = []
    codec.encode(Learn(GROUP, Slot(1)), out)
    return frame(bytes([Kind.PAXOS]) + b"".join(out))


def test_the_end_of_either_direction_is_told(world: World) -> None:
    world.join(1, 2)
    channel = world[1].link(2).channel
    assert channel is not None
    channel.close("cut")
    world.settle()
    assert world[1].handler.downs == [2]
    assert world[2].handler.downs == [1]
    assert not world[1].peers.connected(NodeId(2))
    assert not world[2].peers.connected(NodeId(1))
    assert world[1].reasons("peer link lost") == ["cut"]
    assert world[2].reasons("peer down") == ["closed by the other side"]


def test_a_peer_that_says_nothing_any_more_is_gone(world: World) -> None:
    """Its machine is off, and no FIN was sent: TCP itself would wait a quarter of an hour."""
    world.join(1, 2)
    for _ in range(int(SILENT_S) * 2):
        world[2].peers.ping(draining=False)
        world.pass_seconds(1)
    assert world[1].handler.downs == []
    silent = world.nodes.pop(2)
    world.pass_seconds(SILENT_S - 1)
    assert world[1].handler.downs == []
    world.pass_seconds(3)
    assert world[1].reasons("peer down") == ["it was silent"]
    silent.peers.close()


def test_a_node_that_was_stopped_itself_does_not_blame_its_peers(world: World) -> None:
    """After SIGSTOP or suspend all its clocks have run on, and what arrived is still unread."""
    world.join(1, 2)
    world.pass_seconds(2)
    world[1].clock.advance(int(10 * SILENT_S * SECOND_NS))
    world[1].peers.tick()
    assert world[1].handler.downs == []


# -- messages -------------------------------------------------------------------------------------


def test_messages_arrive_in_order_whatever_their_size(world: World) -> None:
    """Small ones share a frame, large ones are not copied; both arrive as they were sent."""
    world.join(1, 2)
    sizes = [10, 0, 5_000, 100, 3 * PAXOS_FRAME_BYTES, 20_000, 1] + [300_000] * 10
    sent = [accept(slot, size) for slot, size in enumerate(sizes, start=1)]
    for message in sent:
        world[1].peers.send(NodeId(2), message)
    world[1].peers.send(NodeId(2), Commit(GROUP, Ballot(1, NodeId(1)), Slot(1), Slot(9)))
    world.settle()
    got = world[2].handler.messages
    assert [sender for sender, _ in got] == [1] * (len(sent) + 1)
    for (_, message), original in zip(got, sent, strict=False):
        assert isinstance(message, Accept)
        assert message.slot == original.slot
        assert message.entry.same_as(original.entry)
    assert got[-1][1] == Commit(GROUP, Ballot(1, NodeId(1)), Slot(1), Slot(9))


def test_what_a_message_holds_outlives_the_frames_that_follow(world: World) -> None:
    """A small frame is in a reused buffer; an entry is kept until it is applied."""
    world.join(1, 2)
    for slot in range(1, 2_000):
        world[1].peers.send(NodeId(2), accept(slot, 200))
        world[1].peers.flush()
        world.plane.round()
        world[1].peers.forward(NodeId(2), slot, GROUP, False, (bytes([slot % 251]) * 50,), 50)
    world.settle()
    assert len(world[2].handler.messages) == len(world[2].handler.forwards) == 1_999
    for _, message in world[2].handler.messages:
        assert isinstance(message, Accept)
        assert b"".join(message.entry.payload()) == bytes([message.slot % 251]) * 200
    for _, number, _, _, command in world[2].handler.forwards:
        assert command == bytes([number % 251]) * 50


def test_what_is_sent_to_nobody_is_forgotten(world: World) -> None:
    """Losing messages is allowed: the protocol sends them again."""
    peers = world[1].peers
    peers.send(NodeId(2), accept(1))
    peers.send(NodeId(99), accept(1))
    assert not peers.forward(NodeId(2), 1, GROUP, False, (b"x",), 1)
    peers.answer_forward(NodeId(2), 1, Done(b""))
    peers.flush()
    world.join(1, 2)
    world.settle()
    assert world[2].handler.messages == []


def test_a_link_that_was_lost_forgets_what_it_held(world: World) -> None:
    """Half a frame of the old connection must not begin the new one."""
    world.join(1, 2)
    world[1].peers.send(NodeId(2), accept(1))
    channel = world[1].link(2).channel
    assert channel is not None
    channel.close("cut")
    world.connect(1, 2)
    world[1].peers.send(NodeId(2), accept(2))
    world.settle()
    assert [message.slot for _, message in world[2].handler.messages] == [2]


def test_a_full_queue_drops_and_counts(world: World) -> None:
    """A peer that reads nothing takes a bounded amount of memory, and later gets what is new."""
    world.join(1, 2)
    link = world[1].link(2)
    assert link.channel is not None
    link.channel.unsent_bytes_max = link.large.bytes_max = 1_000_000
    for slot in range(1, 100):
        world[1].peers.send(NodeId(2), accept(slot, 100_000))
        world[1].peers.flush()
        assert link.channel.unsent_bytes <= 1_100_000
    assert link.dropped > 0
    for taken in (True, False):
        command = (bytes(1_000_000),)
        assert world[1].peers.forward(NodeId(2), 1, GROUP, False, command, 1_000_000) is taken
    world[1].peers.ping(draining=False)
    world.settle()
    assert link.channel.unsent_bytes == 0
    world[1].peers.send(NodeId(2), accept(500))
    world.settle()
    slots = [message.slot for _, message in world[2].handler.messages]
    assert slots == sorted(slots)
    assert len(slots) + link.dropped >= 100
    assert slots[-1] == 500


# -- forwards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_a_command_goes_over_and_its_outcome_comes_back(world: World, size: int) -> None:
    world.join(1, 2)
    head, body = b"head", bytes(size)
    assert world[1].peers.forward(NodeId(2), 2**40, GROUP, True, (head, body), 4 + size)
    world[1].peers.forward(NodeId(2), 2**40 + 1, GROUP, False, (b"next",), 4)
    world.settle()
    (first, second) = world[2].handler.forwards
    assert first[:4] == (1, 2**40, GROUP, True)
    assert first[4] == head + body, "and it is not overwritten by what follows"
    assert second == (1, 2**40 + 1, GROUP, False, b"next")
    world[2].peers.answer_forward(NodeId(1), 2**40, Done(b"result"))
    world.settle()
    assert world[1].handler.outcomes == [(2, 2**40, Done(b"result"))]


@pytest.mark.parametrize("late_ms", [-1_000, 1_500])
def test_what_a_link_has_held_for_too_long_is_not_carried_out(world: World, late_ms: int) -> None:
    """F1: a record of a producer without sequences carries no other sign that it is late. Its
    client was told long ago that the record's fate is unknown."""
    world.join(1, 2)
    sent_ns = world[1].handler.wall_ns()
    assert world[1].peers.forward(NodeId(2), 5, GROUP, HANDING, (b"x",), 1)
    world[2].handler.wall_ns = lambda: sent_ns + FORWARD_TIMEOUT_NS + late_ms * MS
    world.settle()
    (forward,) = world[2].handler.forwards
    assert forward[3] == HANDING | LATE * (late_ms > 0)


@pytest.mark.parametrize(
    "outcome",
    [
        Done(b""),
        Done(bytes(RESULT_BYTES_MAX)),
        Done(b"result", at_home=True),
        *(NotDone(why, master) for why in FailureReason for master in (None, NodeId(0), NodeId(3))),
    ],
)
def test_every_outcome_is_understood(world: World, outcome: Outcome) -> None:
    world.join(1, 2)
    world[2].peers.answer_forward(NodeId(1), 7, outcome)
    world.settle()
    assert world[1].handler.outcomes == [(2, 7, outcome)]


def test_messages_and_forwards_keep_their_order(world: World) -> None:
    """A forward must not overtake Paxos messages that were sent before it."""
    world.join(1, 2)
    order: list[str] = []
    world[2].handler.on_message = lambda _sender, message: order.append(f"m{message.slot}")
    world[2].handler.on_forward = lambda _sender, number, *_: order.append(f"f{number}")
    world[1].peers.send(NodeId(2), accept(1))
    world[1].peers.forward(NodeId(2), 1, GROUP, False, (b"x",), 1)
    world[1].peers.send(NodeId(2), accept(2))
    world[1].peers.forward(NodeId(2), 2, GROUP, False, (b"x",), 1)
    world.settle()
    assert order == ["m1", "f1", "m2", "f2"]


# -- clocks and draining --------------------------------------------------------------------------


def test_clocks_are_compared(world: World) -> None:
    """The peer's reading is taken to be from the middle of the exchange."""
    world.join(1, 2)
    world.settle()
    assert world[1].handler.clocks == [(2, 0, 0)], "the first time as soon as it can be asked"
    world[1].handler.clocks.clear()
    world[2].handler.draining.clear()
    world[2].clock.wall += 50 * MS
    world[1].peers.ping(draining=False)
    world[1].peers.flush()
    for node in world.nodes.values():
        node.clock.advance(3 * MS)
    world.plane.run_until(lambda: world[2].handler.draining)
    world[2].peers.flush()
    for node in world.nodes.values():
        node.clock.advance(1 * MS)
    world.settle()
    assert world[1].handler.clocks == [(2, 51 * MS, 2 * MS)]


def test_a_ping_says_what_time_it_was_for_the_peer(world: World) -> None:
    """However long it was under way, the peer's time is not earlier than that by now."""
    world.join(1, 2)
    world.settle()
    world[2].handler.times.clear()
    asked = world[1].clock.wall_ns()
    world[1].peers.ping(draining=False)
    world[1].peers.flush()
    world[2].clock.advance(7 * SECOND_NS)
    world.settle()
    assert world[2].handler.times == [(1, asked)]


def test_draining_is_told_with_every_ping(world: World) -> None:
    world.join(1, 2)
    world.join(1, 3)
    world[1].peers.ping(draining=True)
    world.settle()
    world[1].peers.ping(draining=False, low=True)
    world.settle()
    for node in (2, 3):
        assert world[node].handler.draining == [(1, False), (1, True), (1, False)]
        assert world[node].handler.low == [(1, False), (1, False), (1, True)]


# -- hostile bytes --------------------------------------------------------------------------------

HOSTILE = {
    "an unknown kind": bytes([99]) + b"x",
    "a second greeting": bytes([Kind.HELLO]) + hello_of(2).encode(),
    "nothing at all": b"",
    "no message": bytes([Kind.PAXOS]) + b"\xff" * 20,
    "half a message": bytes([Kind.PAXOS]) + b"\x01\0\0\0\x50" + bytes(10),
    "a short ping": bytes([Kind.PING]) + b"x",
    "a long pong": bytes([Kind.PONG]) + bytes(100),
    "an empty forward": bytes([Kind.FORWARD]) + bytes(13),
    "a short forward": bytes([Kind.FORWARD]) + bytes(3),
    "no such outcome": bytes([Kind.FORWARDED]) + struct.pack(">QBi", 1, 99, -1),
    "a huge result": struct.pack(">BQBi", Kind.FORWARDED, 1, 0, -1) + bytes(RESULT_BYTES_MAX + 1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_nonsense_of_a_peer_ends_its_connection_and_nothing_else(world: World, data: bytes) -> None:
    """Messages before it are good, those after it are ignored, and other links stay."""
    world.join(1, 3)
    stranger = world.stranger()
    stranger.sendall(greeting(hello_of(2)))
    world.settle()
    stranger.sendall(message_frame() + frame(data) + message_frame())
    world.settle()
    assert is_closed(stranger)
    assert len(world[1].handler.messages) == 1
    assert world[1].handler.downs == [2]
    assert len(world[1].reasons("peer down")) == 1
    assert world[1].peers.connected(NodeId(3))
    world[3].peers.send(NodeId(1), accept(1))
    world.settle()
    assert world[1].handler.messages[-1][0] == 3


def test_a_greeted_peer_may_send_large_frames(world: World) -> None:
    """And a frame above every limit ends the connection by its length alone."""
    world.join(1, 2)
    world[2].peers.send(NodeId(1), accept(1, 20 << 20))
    world.settle()
    assert len(world[1].handler.messages) == 1
    stranger = world.stranger()
    stranger.sendall(greeting(hello_of(3)) + (200 << 20).to_bytes(4, "big"))
    world.settle()
    assert is_closed(stranger)


# -- connecting, in real time ---------------------------------------------------------------------


class Live:
    """Nodes on a real data plane, each with its own port."""

    def __init__(self) -> None:
        self.plane = DataPlane(FakeSystemClock().boot_ns, lambda *_: None)
        self.changed = trio.Event()
        self.nodes: dict[int, Node] = {}

    def end_of_round(self) -> None:
        for node in self.nodes.values():
            node.peers.flush()
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    async def dial(self, node: Node) -> None:
        while True:
            node.peers.dial()
            await trio.sleep(0.01)
            node.clock.advance(10 * MS)

    async def until(self, condition: Any) -> None:
        with trio.fail_after(10):
            while not condition():
                await self.changed.wait()


async def test_a_lost_link_is_opened_again() -> None:
    """Also to a node that was not there at first, and to one that has been replaced."""
    live, recorder = Live(), Recorder()
    one, two = Node(live.plane, 1), Node(live.plane, 2)
    live.nodes = {1: one, 2: two}
    port = listen(live.plane, Address("127.0.0.1", 0), lambda s, h: None, 5, recorder.journal)
    live.plane.unregister(port._sock.fileno())
    address = Address("127.0.0.1", port.port)
    port.close()  # nobody listens there now
    one.link(2).addresses = (address,)
    async with trio.open_nursery() as nursery:
        await nursery.start(live.plane.run, live.end_of_round)
        one.link(3).addresses = (address,)  # which is another node's
        one.peers.dialer = TrioDialer(nursery)
        nursery.start_soon(live.dial, one)
        await trio.testing.wait_all_tasks_blocked()
        port = listen(live.plane, address, two.peers.accept, 5, recorder.journal)
        await live.until(lambda: two.handler.ups)
        one.link(2).channel.close("cut")  # type: ignore[union-attr]
        await live.until(lambda: len(two.handler.ups) == 2)
        two.peers.close()  # it stops ...
        again = live.nodes[2] = Node(live.plane, 2, incarnation=2)
        port._on_accept = again.peers.accept  # ... and another process is there
        await live.until(lambda: again.handler.ups)
        one.peers.send(NodeId(2), accept(1))
        one.peers.flush()
        await live.until(lambda: again.handler.messages)
        assert one.link(2).reconnects == 3
        assert one.handler.downs.count(NodeId(2)) == 2
        assert set(one.handler.refusals) == {(3, RefusedFor.OTHER_NODE)}
        nursery.cancel_scope.cancel()
    for node in (one, two, again):
        node.peers.close()
    live.plane.unregister(port._sock.fileno())
    port.close()
    live.plane.close()


def test_what_a_member_catches_up_from_arrives_whole(world: World) -> None:
    """And is kept: another thread writes it later."""
    world.connect(1, 2)
    data = Data(7, GROUP, 3, 40, False, (memoryview(b"a" * 70_000), memoryview(b"b" * 70_000)))
    world[1].peers.catch_up(NodeId(2), data)
    world[1].peers.catch_up(NodeId(3), data)  # no link: the same as lost on the way
    world[1].peers.flush()
    handler = world[2].handler
    world.plane.run_until(lambda: handler.catch_ups)
    sender, got = handler.catch_ups[0]
    assert (sender, type(got), got.number) == (1, Data, 7)
    assert b"".join(got.payload) == b"a" * 70_000 + b"b" * 70_000


# -- which nodes there are ------------------------------------------------------------------------


FOUR = NodeId(4)
HERE = Address("127.0.0.1", 4444)


def test_links_follow_the_registry(world: World) -> None:
    """An added node gets a link and may connect; a removed one is told so and disconnected."""
    world.nodes[4] = Node(world.plane, 4)
    world.call(4, 1)
    world.plane.run_until(lambda: world[4].handler.refusals, world.flush)
    assert world[1].handler.ups == []
    assert world[4].handler.refusals == [(1, RefusedFor.UNKNOWN)]
    assert "evenkeel node add" in world[4].reasons("refused by peer")[0]
    world[1].peers.follow({FOUR: HERE}, frozenset())
    assert world[1].link(4).addresses == (HERE,)
    world.join(1, 4)
    assert world[1].peers.connected(FOUR)
    world.join(1, 2)
    world[1].peers.follow({}, frozenset({FOUR}))
    world.settle()
    assert not world[1].peers.connected(FOUR)
    assert FOUR not in world[1].peers.outgoing
    assert world[4].handler.refusals[1:] == [(1, RefusedFor.REMOVED)]
    assert "was removed from this cluster" in world[4].reasons("refused by peer")[1]
    assert world[1].peers.connected(NodeId(2)), "the others are not concerned"


def test_addresses_of_the_registry_come_first(world: World) -> None:
    """Those of the configuration stay as well: a whole cluster may have moved."""
    world[1].peers.follow({NodeId(2): HERE}, frozenset())
    assert world[1].link(2).addresses == (HERE, NOWHERE)
    assert world[1].link(3).addresses == (NOWHERE,)


def test_an_older_process_of_a_connected_node_is_refused(world: World) -> None:
    world.nodes[2] = Node(world.plane, 2, incarnation=7)
    world.connect(2, 1)
    world.nodes[4] = older = Node(world.plane, 2, incarnation=6)
    accepted, connected = world.tcp.pair()
    connected.setblocking(False)
    world[1].peers.accept(accepted, "127.0.0.1")
    older.peers.greet(older.link(1), connected)
    world.settle()
    assert older.handler.refusals == [(1, RefusedFor.TWICE)]
    assert world[1].handler.ups == [(2, 7)]
    assert world[1].handler.downs == []
