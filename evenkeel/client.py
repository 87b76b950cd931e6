"""What producer, consumer and admin client share: connections, metadata, and retries.

Connections are opened when needed, at most one for each node and purpose: a delayed fetch or a
JoinGroup must not delay the requests behind it. After a failure a node is left alone for a while,
which doubles up to `retry_backoff_max_ms`. A node that refuses to believe who we are ends this:
`on_denied` is told, which may not block, and callers get an AuthenticationError.

One task refreshes the metadata for all callers and all topics of interest at once. There is a pause
between two refreshes, so a thousand errors cause one request. `on_change` is called (it may not
block) whenever the metadata has changed.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final, TypeVar

import attrs
import trio

from evenkeel.config import ClientConfig, addresses
from evenkeel.connection import Connection
from evenkeel.errors import (
    AuthenticationError,
    ClosedError,
    EvenkeelError,
    TimedOutError,
    UnreachableError,
    refusal,
)
from evenkeel.lifetime import background
from evenkeel.opening import connect
from wire.apis import Request
from wire.cluster_view import ClusterView, TopicPartition, TopicView
from wire.error_codes import ErrorCode
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R")
T = TypeVar("T")

BACKOFF_DOUBLINGS_MAX: Final = 16
METADATA_S_MAX: Final = 5.0
"""Any node can answer; one that takes longer is stuck, and another one is asked."""
BOOTSTRAP: Final = -1
"""Stands for "some node": a connection to any node of the cluster that could be reached."""


class Purpose(Enum):
    """Requests of different purposes do not wait for each other."""

    GENERAL = "general"
    PRODUCE = "produce"
    FETCH = "fetch"
    GROUP = "group"


def backoff_s(config: ClientConfig, failures: int) -> float:
    """Doubles, with a random fifth, so that many clients do not come back at the same time."""
    doublings = min(failures, BACKOFF_DOUBLINGS_MAX)
    pause_ms = min(config.retry_backoff_ms << doublings, config.retry_backoff_max_ms)
    return pause_ms / 1000 * random.uniform(0.8, 1.2)


@attrs.define(eq=False)
class _NodeConnection:
    """The connection to one node for one purpose."""

    lock: trio.Lock = attrs.Factory(trio.Lock)
    connection: Connection | None = None
    failures: int = 0
    not_before: float = 0.0


def _nothing(_error: AuthenticationError | None = None) -> None:
    """For owners that watch the metadata themselves, and whose calls tell what fails."""


@attrs.define(eq=False)
class Client:
    """Made by `open_client`; everything it starts ends with it."""

    config: ClientConfig
    bootstrap: tuple[tuple[str, int], ...]
    on_change: Callable[[], None]
    on_denied: Callable[[AuthenticationError], None]
    auto_create: bool
    """Whether brokers configured to do so may create topics we ask for."""
    _nursery: trio.Nursery
    view: ClusterView = attrs.Factory(ClusterView)
    topics: set[str] | None = attrs.Factory(set)
    """Topics of interest: every refresh asks for these; None stands for all topics."""
    _lines: dict[tuple[int, Purpose], _NodeConnection] = attrs.Factory(dict)
    _refresh_wanted: trio.Event = attrs.Factory(trio.Event)
    _refreshed: trio.Event = attrs.Factory(trio.Event)
    _refresh_error: EvenkeelError | None = None
    _last_place: tuple[str, int] | None = None
    _sent_away_by: set[tuple[str, int]] = attrs.Factory(set)
    """Nodes that said they are cut off (KIP-1102): asked again once all others were."""
    _asks_begun: int = 0
    _asks_done: int = 0

    # -- connections ------------------------------------------------------------------------------

    def ready(self, node: int, purpose: Purpose) -> Connection | None:
        """The open connection to a node, if there is one."""
        line = self._lines.get((node, purpose))
        if line is None or line.connection is None or not line.connection.usable:
            return None
        return line.connection

    async def connection(self, node: int, purpose: Purpose = Purpose.GENERAL) -> Connection:
        """The connection to a node, opened if there is none.

        Raises:
            UnreachableError: if it cannot be opened. After a failure the next attempt waits.
        """
        line = self._lines.setdefault((node, purpose), _NodeConnection())
        async with line.lock:
            if line.connection is not None and line.connection.usable:
                return line.connection
            await trio.sleep_until(line.not_before)
            line.connection = None
            try:
                line.connection = await self._connect(node)
            except EvenkeelError as error:
                if isinstance(error, AuthenticationError):
                    self.on_denied(error)
                line.not_before = trio.current_time() + backoff_s(self.config, line.failures)
                line.failures += 1
                raise
            line.failures = 0
            return line.connection

    async def _connect(self, node: int) -> Connection:
        if node != BOOTSTRAP:
            known = self.view.nodes.get(node)
            if known is None:
                raise UnreachableError(f"cannot reach node {node}", why="its address is unknown")
            return await connect(self._nursery, known.host, known.port, self.config)
        places = [(one.host, one.port) for one in self.view.nodes.values()]
        random.shuffle(places)
        places += [one for one in self.bootstrap if one not in places]
        # Last come the nodes that sent us away, and the last one asked: it failed, or is stuck.
        if self._sent_away_by:  # then start again with the bootstrap addresses
            places.sort(key=lambda place: place not in self.bootstrap)
        places.sort(key=lambda place: place in self._sent_away_by or place == self._last_place)
        failures: list[EvenkeelError] = []
        for host, port in places:
            try:
                self._last_place = (host, port)
                return await connect(self._nursery, host, port, self.config)
            except EvenkeelError as error:
                failures.append(error)
        denied = next((one for one in failures if isinstance(one, AuthenticationError)), None)
        if denied is not None:
            raise denied  # it would not help to come back
        raise UnreachableError(
            "no broker can be reached",
            why="; ".join(map(str, failures)),
            advice="check the bootstrap addresses, and that the cluster runs",
        )

    async def ask(
        self,
        node: int,
        message: Request,
        kind: type[R],
        *,
        purpose: Purpose = Purpose.GENERAL,
        timeout_s: float | None = None,
    ) -> R:
        """Send one request to one node, once."""
        connection = await self.connection(node, purpose)
        return await connection.request(message, kind, timeout_s=timeout_s)

    # -- trying again -----------------------------------------------------------------------------

    async def until_done(
        self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_s: float | None = None
    ) -> T:
        """Run `attempt` until it succeeds or fails for good; between attempts, refresh and wait.

        Raises:
            TimedOutError: with the last failure as its cause, when the time is up.
            EvenkeelError: what `attempt` raised, if trying again would not help.
        """
        seconds = self.config.operation_timeout_ms / 1000 if timeout_s is None else timeout_s
        last: EvenkeelError | None = None
        failures = 0
        with trio.move_on_after(seconds):
            while True:
                try:
                    return await attempt()
                except EvenkeelError as error:
                    if not error.retriable:
                        raise
                    last = error
                self.want_refresh()
                await trio.sleep(backoff_s(self.config, failures))
                failures += 1
        why = f"not done within {seconds:g} s" + ("" if last is None else f"; the last try: {last}")
        raise TimedOutError(what, why=why) from last

    # -- metadata ---------------------------------------------------------------------------------

    def want_refresh(self) -> None:
        """Ask for newer metadata soon; does not wait."""
        self._refresh_wanted.set()

    async def refresh(self) -> None:
        """Wait for metadata that was requested after this call.

        Raises:
            UnreachableError: if no broker answers.
        """
        wanted = self._asks_begun + 1
        self.want_refresh()
        while self._asks_done < wanted:
            await self._refreshed.wait()
        if self._refresh_error is not None:
            raise self._refresh_error.again() from self._refresh_error.__cause__

    def follow(self, topics: Iterable[str]) -> None:
        """Include these topics in all refreshes from now on."""
        if self.topics is not None and not self.topics.issuperset(topics):
            self.topics.update(topics)
            self.want_refresh()

    async def topic(self, name: str, *, timeout_s: float | None = None) -> TopicView:
        """A topic's view, waiting until it is known.

        Raises:
            TimedOutError: if it is not known in time; the cause says why.
            BrokerError: if it never will be.
        """
        self.follow([name])

        async def look() -> TopicView:
            view = self.view.topics.get(name)
            if view is not None and view.partitions:
                return view
            await self.refresh()
            view = self.view.topics.get(name)
            if view is not None and view.partitions:
                return view
            code = self.view.errors.get(name, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            raise refusal(f"topic '{name}' cannot be used", code)

        return await self.until_done(f"topic '{name}' is not known", look, timeout_s=timeout_s)

    async def leader(self, place: TopicPartition) -> int:
        """The node that leads a partition.

        Raises:
            BrokerError: LEADER_NOT_AVAILABLE (retriable) or UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.follow([place.topic])
        found = self.view.leader(place)
        if found is None:
            await self.refresh()
            found = self.view.leader(place)
        if found is None:
            known = self.view.partition(place) is not None
            code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise refusal(f"{place} cannot be reached", code)
        return found

    async def _keep_fresh(self) -> None:
        """The only task that requests metadata."""
        failures = 0
        while True:
            with trio.move_on_after(self.config.metadata_max_age_ms / 1000):
                await self._refresh_wanted.wait()
            self._refresh_wanted = trio.Event()
            self._asks_begun += 1
            before = self.view.changes
            try:
                await self._ask_metadata()
            except EvenkeelError as error:
                self._refresh_error = error
                failures += 1
            else:
                self._refresh_error = None
                failures = 0
            self._asks_done = self._asks_begun
            self._refreshed.set()
            self._refreshed = trio.Event()
            if self.view.changes != before:
                self.on_change()
            await trio.sleep(backoff_s(self.config, failures))

    async def _ask_metadata(self) -> None:
        asked = None if self.topics is None else sorted(self.topics)
        topics = None if asked is None else [MetadataRequestTopic(name=name) for name in asked]
        connection = await self.connection(BOOTSTRAP)
        if asked == [] and connection.version_for(MetadataRequest) == 0:
            topics = [MetadataRequestTopic(name="")]  # in version 0 an empty list would mean all
        request = MetadataRequest(topics, allow_auto_topic_creation=self.auto_create)
        patience_s = min(METADATA_S_MAX, self.config.request_timeout_ms / 1000)
        answer = await self.metadata(request, timeout_s=patience_s)
        self.view.take(answer, asked)

    async def metadata(
        self, request: MetadataRequest, *, timeout_s: float | None = None
    ) -> MetadataResponse:
        """Ask some node. A node that is cut off from all others says so (KIP-1102); then the next
        one is asked at once.

        Raises:
            BrokerError: REBOOTSTRAP_REQUIRED (retriable) if all say so.
        """
        while True:
            connection = await self.connection(BOOTSTRAP)
            answer = await connection.request(request, MetadataResponse, timeout_s=timeout_s)
            if answer.error_code == ErrorCode.NONE:
                self._sent_away_by.clear()
                return answer
            error = refusal("metadata is refused", answer.error_code)
            if answer.error_code != ErrorCode.REBOOTSTRAP_REQUIRED:
                raise error
            connection.close(error)
            if self._last_place is None or self._last_place in self._sent_away_by:
                self._sent_away_by.clear()
                raise error
            self._sent_away_by.add(self._last_place)

    # -- whom to ask ------------------------------------------------------------------------------

    async def controller(self) -> int:
        """The node that changes topics; with some clusters any node will do."""
        if self.view.controller not in self.view.nodes:
            await self.refresh()
        return self.view.controller if self.view.controller in self.view.nodes else BOOTSTRAP

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task of the owner for as long as the client lives."""
        self._nursery.start_soon(work)


def raise_for(what: str, code: int, message: str | None = None) -> None:
    """Raise the error for a code, unless it is NONE."""
    if code != ErrorCode.NONE:
        raise refusal(what, code, message)


@asynccontextmanager
async def open_client(
    bootstrap: str | Iterable[str],
    config: ClientConfig,
    *,
    on_change: Callable[[], None] = _nothing,
    on_denied: Callable[[AuthenticationError], None] = _nothing,
    auto_create: bool = False,
) -> AsyncIterator[Client]:
    """A client for as long as the body runs; it sends nothing until it has to."""
    places = addresses(bootstrap if isinstance(bootstrap, str) else list(bootstrap))
    async with background() as nursery:
        client = Client(config, places, on_change, on_denied, auto_create, nursery)
        nursery.start_soon(client._keep_fresh)
        try:
            yield client
        finally:
            for line in client._lines.values():
                if line.connection is not None:
                    line.connection.close(ClosedError("the client was closed"))
