"""The console of one node: its pages, the live picture, and the messages between nodes.

GET /console/ and its other files come from dashboards/console; GET /console/events streams the
picture. The page's buttons use the same routes as the command line (runtime.admin.balancer).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from broker.requests.context import Broker
from paxos.ids import NodeId, Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.planning_loop import PlanningLoop
from runtime.console.changes import EVENT_STREAM
from runtime.console.cluster_view import ClusterView
from runtime.console.hub import Hub, Sections, Source, TooMany
from runtime.console.local_report import LocalReport
from runtime.console.messages import (
    PARTITIONS_MAX,
    Ask,
    Data,
    Sample,
    State,
    What,
    decode,
    encode_ask,
    encode_tell,
)
from runtime.console.pages import pages
from runtime.console.recent_traffic import RecentTraffic
from runtime.console.reports import ClusterReports
from runtime.engine.engine import Engine
from runtime.http.server import Answer, BadRequest, Route, Stream, json_answer
from runtime.peers.peers import Peers

DATA_EVERY: Final = 3
"""Data is requested, and shown, with every third picture."""
FIRST_ANSWERS_S: Final = 0.15
"""How long the first picture waits for the others' answers."""
DATA_KEPT_S: Final = 2.0
"""A request within this time gets the same data again."""
NOT_TOLD: Final = f"no node has reported it: it is new or deleted, or over {PARTITIONS_MAX} exist"


class Console:
    """`wake` ends a round of the engine, after sending from outside of the data plane."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        loop: BalancingLoop,
        planner: PlanningLoop,
        peers: Peers,
        *,
        cluster_id: str,
        durability: str,
        not_ready: Callable[[], str],
        connections: Callable[[], int],
        wake: Callable[[], None],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._engine, self._peers, self._wake = engine, peers, wake
        self._recent_traffic = RecentTraffic(broker.statistics)
        self._local_report = LocalReport(
            engine, broker, self._recent_traffic, durability, not_ready, connections
        )
        self._reports = ClusterReports()
        self._view = ClusterView(engine, loop, planner, self._reports, cluster_id)
        self._pages = pages()
        source = Source(
            begin=self._begin,
            render=self._render,
            news=self._news,
            samples=self._samples,
            end=self._end,
        )
        self.hub = Hub(source, on_bug)
        self._on_bug = on_bug
        self._rendered = 0
        self._shown_to: dict[NodeId, int] = {}
        """The second of each node's last sample that watchers have."""
        self._data_wanted = trio.Event()
        self._data_asked: dict[NodeId, None] = {}
        self._data: tuple[Data, float] | None = None
        peers.on_console = self._on_frame

    # -- life ---------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Called once a second."""
        self._recent_traffic.tick(now)

    def masters_changed(self) -> None:
        self.hub.hurry()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.hub.run)
            nursery.start_soon(self._tell_data)

    # -- messages between nodes ---------------------------------------------------------------

    def _on_frame(self, node: NodeId, body: memoryview) -> None:
        """Handle a CONSOLE frame. Raises PeerError if it is malformed."""
        said = decode(body)
        now = self._engine.now()
        if isinstance(said, State):
            self._reports.hear_state(node, said, now)
        elif isinstance(said, Data):
            self._reports.hear_data(node, said, now)
        elif said.what == What.STATE:
            self._peers.console(node, encode_tell(self._local_report.state(said.since)))
        else:
            self._data_asked[node] = None
            self._data_wanted.set()

    async def _tell_data(self) -> None:
        """Collect the data when a node wants it, and send it to all that do."""
        while True:
            await self._data_wanted.wait()
            self._data_wanted = trio.Event()
            try:
                if self._data is None or trio.current_time() - self._data[1] > DATA_KEPT_S:
                    self._data = await self._local_report.data(), trio.current_time()
            except Exception as error:  # noqa: BLE001  logged with its traceback; the node goes on
                self._on_bug("console", error)
                continue
            asked, self._data_asked = self._data_asked, {}
            for node in asked:
                if node == self._engine.multi.me:
                    self._reports.hear_data(node, self._data[0], self._engine.now())
                else:
                    self._peers.console(node, encode_tell(self._data[0]))
            self._wake()

    def _ask(self, what: What) -> None:
        """Ask all nodes, including this one; nothing waits for nodes that do not answer."""
        me, now = self._engine.multi.me, self._engine.now()
        if what == What.STATE:
            self._reports.hear_state(me, self._local_report.state(self._reports.known_to(me)), now)
        else:
            self._data_asked[me] = None
            self._data_wanted.set()
        for node in self._peers.linked:
            self._peers.console(node, encode_ask(Ask(what, self._reports.known_to(node))))
        self._wake()

    # -- pictures -----------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._rendered = 0
        self._ask(What.STATE)
        self._ask(What.DATA)
        await trio.sleep(FIRST_ANSWERS_S)

    async def _render(self, before: Sections) -> Sections:
        now, after = self._engine.now(), dict(before)
        if self._rendered % DATA_EVERY == 1 or "topics" not in before:
            self._reports.add_up(now)
            after |= self._view.slow(now)
        after |= await self._view.quick(now)
        self._rendered += 1
        self._ask(What.STATE)
        if self._rendered % DATA_EVERY == 0:
            self._ask(What.DATA)
        return after

    def _news(self) -> dict[str, list[Sample]]:
        news = {}
        for node in self._nodes():
            samples = self._reports.samples(node)
            shown_to = self._shown_to.get(node, -1)
            newer = [sample for sample in samples if sample.second > shown_to]
            if newer:
                self._shown_to[node] = newer[-1].second
                news[str(node)] = newer
        return news

    def _samples(self) -> dict[str, list[Sample]]:
        """The samples that watchers have; later ones are sent with a change."""
        return {
            str(node): [one for one in self._reports.samples(node) if one.second <= shown_to]
            for node, shown_to in self._shown_to.items()
        }

    def _nodes(self) -> list[NodeId]:
        return sorted({self._engine.multi.me, *self._peers.outgoing})

    def _end(self) -> None:
        self._reports.clear()
        self._shown_to.clear()
        self._data = None

    # -- over HTTP ----------------------------------------------------------------------------

    def routes(self) -> dict[tuple[str, str], Route]:
        return {
            **self._pages,
            ("GET", "/console/events"): self.events,
            ("GET", "/console/topic"): self.topic,
            ("GET", "/console/consumers"): self.consumers,
        }

    async def events(self, _query: Any) -> Answer | Stream:  # noqa: ANN401 # JSON
        try:
            watch = self.hub.admit()
        except TooMany:
            return json_answer({"error": "too many watchers: close other consoles"}, 503)
        return Stream(EVENT_STREAM, watch, (("X-Accel-Buffering", "no"),))

    async def topic(self, query: Any) -> Answer:  # noqa: ANN401
        """?name=TOPIC: its partitions."""
        found = self._view.topic(_name(query))
        return json_answer({"error": NOT_TOLD}, 404) if found is None else json_answer(found)

    async def consumers(self, query: Any) -> Answer:  # noqa: ANN401
        """?name=GROUP: a consumer group's offsets by partition."""
        found = self._view.consumer_group(_name(query), self._engine.now())
        return json_answer({"error": NOT_TOLD}, 404) if found is None else json_answer(found)


def _name(query: Mapping[str, str] | None) -> str:
    name = (query or {}).get("name")
    if name is None:
        raise BadRequest("expected ?name=...")
    return name
