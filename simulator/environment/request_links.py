"""Links of simulated nodes for requests to coordinators (broker.groups.forwarded_requests).

A link behaves as TCP does: frames arrive once and in order, or nothing arrives after a lost one.
The other side confirms each frame; a link on which one stays unconfirmed is given up, and with it
what was under way on it, in both directions.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import attrs

from broker.groups.forwarded_requests import RequestForwarding, Verdict
from paxos.ids import MS, GroupId, NodeId
from simulator.environment.loop import Loop
from simulator.environment.network import Network

UNCONFIRMED_NS_MAX: Final = 700 * MS


class Carried(NamedTuple):
    """The `number`th frame on the sender's `link`th link."""

    link: int
    number: int
    request: tuple[int, GroupId, int, int, bytes] | None = None
    answer: tuple[int, Verdict, bytes] | None = None


class Confirmed(NamedTuple):
    link: int
    number: int


class World(Protocol):
    @property
    def loop(self) -> Loop: ...

    @property
    def network(self) -> Network: ...

    @property
    def statistics(self) -> Counter[str]: ...


class Node(Protocol):
    @property
    def world(self) -> World: ...

    @property
    def me(self) -> NodeId: ...

    def alive(self) -> frozenset[NodeId]: ...


@attrs.define(eq=False)
class _Out:
    link: int
    next: int = 0
    sent_ns: dict[int, int] = attrs.Factory(dict)
    """Frames that are not confirmed yet, and when they were sent."""


@attrs.define(eq=False)
class _In:
    link: int
    expected: int = 0
    early: dict[int, Carried] = attrs.Factory(dict)


class RequestLinks:
    """Those of one life of a node."""

    def __init__(self, node: Node, life: int) -> None:
        self._node = node
        self._link = life << 32
        self._out: dict[NodeId, _Out] = {}
        self._in: dict[NodeId, _In] = {}
        self.forwarding: RequestForwarding | None = None

    # -- broker.groups.forwarded_requests.RequestLinks ----------------------------------------

    def takes(self, to: NodeId) -> bool:
        return to in self._node.alive()

    def ask(
        self, to: NodeId, number: int, group: GroupId, epoch: int, until_wall_ns: int, body: bytes
    ) -> bool:
        self._node.world.statistics["requests to coordinators forwarded"] += 1
        self._send(to, request=(number, group, epoch, until_wall_ns, body))
        return True

    def answer(self, to: NodeId, number: int, verdict: Verdict, body: bytes) -> None:
        if to in self._in:  # else the link that it came on is lost
            self._node.world.statistics[f"requests to coordinators {verdict.name.lower()}"] += 1
            self._send(to, answer=(number, verdict, body))

    def _send(
        self,
        to: NodeId,
        *,
        request: tuple[int, GroupId, int, int, bytes] | None = None,
        answer: tuple[int, Verdict, bytes] | None = None,
    ) -> None:
        out = self._out.get(to)
        if out is None:
            self._link += 1
            out = self._out[to] = _Out(self._link)
        out.sent_ns[out.next] = self._node.world.loop.now_ns
        frame = Carried(out.link, out.next, request, answer)
        out.next += 1
        self._node.world.network.send(self._node.me, to, frame)

    # -- what arrives -------------------------------------------------------------------------

    def confirmed(self, source: NodeId, what: Confirmed) -> None:
        out = self._out.get(source)
        if out is not None and out.link == what.link:
            out.sent_ns.pop(what.number, None)

    def received(self, source: NodeId, what: Carried, handle: Callable[[Carried], None]) -> None:
        known = self._in.get(source)
        if known is None or what.link > known.link:
            if known is not None:  # the peer has given the earlier one up
                self._lose(source)
            known = self._in[source] = _In(what.link)
        if what.link != known.link or what.number < known.expected:
            return
        known.early[what.number] = what
        while (frame := known.early.pop(known.expected, None)) is not None:
            known.expected += 1
            world = self._node.world
            world.network.send(self._node.me, source, Confirmed(frame.link, frame.number))
            handle(frame)

    def handle(self, source: NodeId, frame: Carried) -> None:
        assert self.forwarding is not None
        if frame.request is not None:
            self.forwarding.on_request(source, *frame.request)
        else:
            assert frame.answer is not None
            self.forwarding.on_answer(source, *frame.answer)

    # -- time ---------------------------------------------------------------------------------

    def tick(self) -> None:
        now_ns = self._node.world.loop.now_ns
        for node, out in list(self._out.items()):
            if out.sent_ns and now_ns - min(out.sent_ns.values()) > UNCONFIRMED_NS_MAX:
                self._node.world.statistics["links of requests lost"] += 1
                self._lose(node)

    def _lose(self, node: NodeId) -> None:
        self._out.pop(node, None)
        assert self.forwarding is not None
        self.forwarding.lost(node)
