"""Large requests are served in portions, round by round, so that no other request waits for them.

A request may name 100,000 items in a frame of a megabyte. What each item costs is known
(`SPLIT_RULES` has how many take a few milliseconds), so a request that names more is cut into
smaller ones of its kind, each a fourth of that, which the same handlers answer; each round serves
one of them, taking the requests in turns. (Everything served beside them takes several rounds to
become durable and be answered, so rounds have to be short.) The answers are read, joined and
encoded again in the background. While portions are left, nothing more is read of the connection:
what follows must not overtake them.

What is asked twice in one request is answered once if the answer says which item it is about. If a
handler's verdict on a partition depends on how often it is named (`SplitRule.together`), it gets
all of its occurrences in one portion, and judges as it would with the whole request.

Changes that are decided as a whole (CreateTopics and the like) are not cut, but limited in size.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import attrs

from broker.config import BrokerConfig
from broker.ports import BackgroundWorker, Groups, Reply, Timers
from broker.requests.named_items import NAMED
from broker.requests.reply_around import ReplyAround
from broker.requests.request import Request
from broker.requests.steps import Steps
from paxos.ids import MS
from wire.apis import (
    APIS,
    ApiKey,
    RequestHeader,
    decode_request,
    decode_response,
    encode_response,
)
from wire.codec.primitives import Buffer
from wire.records.batch import may_be_one

H = TypeVar("H", bound="Host")
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
ROOMS_MAX: Final = 2
"""A joined answer is at most this many times what one answer may take of the memory for all
answers; a connection that asks for more is closed."""


LOOKED_AT_MAX: Final = 1_000
"""Items of a request examined in one round, even if they were named before."""
PORTIONS_OF_A_PIECE: Final = 4
"""A request that is cut at all is cut into smaller pieces than what is served in one piece."""
GROUPS_FROM: Final = 8
"""OffsetFetch: the first version that names consumer groups, and within them topics (KIP-709)."""
PARTS_MAX: Final = 50
"""Partitions of a topic of a consumer group that count as one item; more are cut as well."""
REST_BYTES: Final = 16 * 1024
"""Bytes of answers joined between two rests: about a millisecond's work."""


class SplitRule(NamedTuple):
    """How requests of one API are cut: at `asked`, within items at `inner`; up to `size` of either
    are served in one piece. The answers are joined at `answered` and `answered_inner`."""

    size: int
    asked: str
    answered: str
    inner: str = ""
    answered_inner: str = ""
    once: Callable[[Any], Hashable] | None = None
    """What identifies an item, where equal items get a single answer."""
    together: bool = False
    """Whether a partition named more than once is treated differently from one named once."""
    counts: Callable[[Any], bool] | None = None
    """For a partition named more than once: the last of these alone counts, else the last."""
    enough: int | None = None
    """This many items are as good as all: there is one answer."""
    innermost: str = ""
    answered_innermost: str = ""
    """Where items within items name items themselves: PARTS_MAX of them count as one."""

    @property
    def portion(self) -> int:
        return max(1, self.size // PORTIONS_OF_A_PIECE)


def _itself(name: str) -> Hashable:
    return name


def _resource(one: Any) -> Hashable:  # noqa: ANN401  wire.messages.configs.DescribeConfigsResource
    keys = one.configuration_keys
    return one.resource_type, one.resource_name, None if keys is None else tuple(keys)


def _topic(one: Any) -> Hashable:  # noqa: ANN401  wire.messages.metadata.MetadataRequestTopic
    name: Hashable = one.topic_id if one.name is None else one.name
    return name


def _rule(
    key: ApiKey,
    size: int,
    *,
    once: Callable[[Any], Hashable] | None = None,
    together: bool = False,
    counts: Callable[[Any], bool] | None = None,
    enough: int | None = None,
    row: int = -1,
) -> tuple[ApiKey, SplitRule]:
    named = NAMED[key][row]
    inner = ("", "") if named.inner is None else (named.inner.asked, named.inner.answered)
    return key, SplitRule(size, named.asked, named.answered, *inner, once, together, counts, enough)


SPLIT_RULES: Final[Mapping[int, SplitRule]] = dict(
    (
        _rule(ApiKey.PRODUCE, 400, together=True, counts=lambda data: may_be_one(data.records)),
        _rule(ApiKey.FETCH, 800),
        _rule(ApiKey.LIST_OFFSETS, 1_000, together=True, enough=2),
        _rule(ApiKey.OFFSET_FOR_LEADER_EPOCH, 1_000),
        _rule(ApiKey.METADATA, 500, once=_topic),
        _rule(ApiKey.OFFSET_COMMIT, 500),
        (
            ApiKey.OFFSET_FETCH,
            SplitRule(
                20,
                "groups",
                "groups",
                "topics",
                "topics",
                innermost="partition_indexes",
                answered_innermost="partitions",
            ),
        ),
        _rule(ApiKey.FIND_COORDINATOR, 1_000, once=_itself),
        _rule(ApiKey.DESCRIBE_GROUPS, 10, once=_itself),
        _rule(ApiKey.CONSUMER_GROUP_DESCRIBE, 10, once=_itself),
        _rule(ApiKey.DELETE_GROUPS, 200, once=_itself),
        _rule(ApiKey.DESCRIBE_CONFIGS, 40, once=_resource),
        _rule(ApiKey.DELETE_RECORDS, 500, together=True, counts=lambda _: True),
        _rule(ApiKey.OFFSET_DELETE, 1_000),
        _rule(ApiKey.ELECT_LEADERS, 500, together=True, counts=lambda _: True),
        _rule(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 500, together=True, enough=2),
    )
)


_BEFORE_GROUPS: Final = _rule(ApiKey.OFFSET_FETCH, 1_000, row=0)[1]


def _rule_of(header: RequestHeader) -> SplitRule | None:
    if header.api_key == ApiKey.OFFSET_FETCH and header.api_version < GROUPS_FROM:
        return _BEFORE_GROUPS
    return SPLIT_RULES.get(header.api_key)


class Host(Protocol):
    """What is needed of a node's Broker (broker.requests.context)."""

    config: BrokerConfig
    groups: Groups
    timers: Timers
    background: BackgroundWorker
    on_bug: Callable[[str, Exception], None]


class Portions:
    """The requests of one node that are being served in portions."""

    def __init__(self, bytes_max: int) -> None:
        self._turns: deque[_Serving | Steps] = deque()
        self._armed = False
        self.served = 0
        self._bytes_max = bytes_max
        self.bytes = 0
        """Bytes of answers to portions that wait to be joined."""

    def __len__(self) -> int:
        return len(self._turns)

    def serve(
        self,
        broker: H,
        request: Request,
        handler: Callable[[H, Request], None],
        end: Callable[[], None] | None = None,
    ) -> bool:
        """False if the request is small enough for its handler; else `end` is called once it is
        answered."""
        rule = _rule_of(request.header)
        if rule is None:
            return False
        items = getattr(request.message, rule.asked)
        if not items or _weight(items, rule.inner, rule.innermost) <= rule.size:
            return False
        request.reply.stop_reading()
        self.served += 1
        if not request.owned:  # the frame and what is decoded from it die with the round
            frame = memoryview(bytes(request.frame))
            message = decode_request(request.header, frame)
            request = attrs.evolve(request, frame=frame, owned=True, message=message)
            items = getattr(message, rule.asked)

        def begin(items: list[Any]) -> None:
            serving = _Serving(self, broker, request, partial(handler, broker), rule, items)
            serving.end = end or _nobody
            self._turns.append(serving)
            self._arm(broker)

        if rule.together:
            broker.background.submit(
                partial(_sorted_out, items, rule, broker.background.rest), begin
            )
        else:
            begin(items)
        return True

    def in_steps(
        self, broker: Host, reply: Reply, work: Iterator[None], done: Callable[[], None]
    ) -> None:
        """Do this work, then `done`: at once if it never yields, else one step per round."""
        steps = Steps(reply, work, done, broker.on_bug)
        if steps.next_portion():
            self._turns.append(steps)
            self._arm(broker)

    def _arm(self, broker: Host) -> None:
        if not self._armed and self._turns:
            self._armed = True
            broker.timers.call_at(broker.groups.now().boot_ns, partial(self._round, broker))

    def _round(self, broker: Host) -> None:
        self._armed = False
        serving = self._turns.popleft()
        if not serving.next_portion():
            self._arm(broker)
            return
        if self.bytes < self._bytes_max:
            self._turns.append(serving)
        else:  # finishing requests is the fastest way to free memory
            self._turns.appendleft(serving)
        self._arm(broker)


def _weight(items: list[Any], inner: str, innermost: str = "") -> int:
    """How many items are named."""
    if not inner:
        return len(items)
    named = [getattr(one, inner) or () for one in items]
    cuts = (len(getattr(one, innermost)) // PARTS_MAX for some in named for one in some)
    return len(items) + sum(map(len, named)) + (sum(cuts) if innermost else 0)


def _inner(one: Any, rule: SplitRule) -> list[Any]:  # noqa: ANN401  an item of any request
    """The inner items of an item, each with at most PARTS_MAX innermost ones."""
    if not rule.inner:
        return []
    named: list[Any] = getattr(one, rule.inner) or []
    if not rule.innermost:
        return named
    return [
        attrs.evolve(inner, **{rule.innermost: parts[at : at + PARTS_MAX]})
        for inner in named
        for parts in (getattr(inner, rule.innermost),)
        for at in range(0, len(parts) or 1, PARTS_MAX)
    ]


def _cut(items: list[Any], rule: SplitRule) -> Iterator[list[Any]]:
    """Portions of `rule.portion`: an item that is too large for one is cut itself. An empty portion
    stands for a round in which items were only examined."""
    portion: list[Any] = []
    size = rule.portion
    room = size
    seen: set[Hashable] = set()
    for number, one in enumerate(items, 1):
        if number % LOOKED_AT_MAX == 0:  # they may all be duplicates
            yield portion
            portion, room = [], size
        if rule.once is not None:
            if (key := rule.once(one)) in seen:
                continue
            seen.add(key)
        named = _inner(one, rule)
        if len(named) < room:
            portion.append(one)
            room -= 1 + len(named)
        else:
            for start in range(0, len(named) or 1, size):
                some = named[start : start + size]
                if len(some) >= room and portion:
                    yield portion
                    portion, room = [], size
                portion.append(attrs.evolve(one, **{rule.inner: some}) if rule.inner else one)
                room -= 1 + len(some)
        if room <= 0:
            yield portion
            portion, room = [], size
    if portion:
        yield portion


_Place = tuple[str, int]


def _place(topic: Any, one: Any) -> _Place:  # noqa: ANN401  a partition of any request
    name = topic.topic if hasattr(topic, "topic") else topic.name
    if isinstance(one, int):
        return name, one
    return name, one.index if hasattr(one, "index") else one.partition_index


def _named_twice(items: list[Any], rule: SplitRule, rest: Callable[[], None]) -> set[_Place]:
    """The partitions that are named more than once."""
    seen: set[_Place] = set()
    twice: set[_Place] = set()
    looked_at = 0
    for topic in items:
        for one in getattr(topic, rule.inner):
            place = _place(topic, one)
            (twice if place in seen else seen).add(place)
            looked_at += 1
            if looked_at % LOOKED_AT_MAX == 0:
                rest()
    return twice


def _sorted_out(items: list[Any], rule: SplitRule, rest: Callable[[], None]) -> list[Any]:
    """The same items, with each partition named more than once in an item of its own at the end."""
    twice = _named_twice(items, rule, rest)
    if not twice:
        return items
    once: list[Any] = []
    apart: dict[_Place, tuple[Any, list[Any]]] = {}
    for number, topic in enumerate(items, 1):
        left: list[Any] = []
        for one in getattr(topic, rule.inner):
            place = _place(topic, one)
            if place in twice:
                apart.setdefault(place, (topic, []))[1].append(one)
            else:
                left.append(one)
        if left or not getattr(topic, rule.inner):
            once.append(attrs.evolve(topic, **{rule.inner: left}))
        if number % LOOKED_AT_MAX == 0:
            rest()
    for number, (topic, named) in enumerate(apart.values(), 1):
        some = named[: rule.enough]
        if rule.counts is not None:
            some = [next(filter(rule.counts, reversed(named)), named[-1])]
        parts = -(-len(some) // rule.portion)  # each with at least two of them
        for at in range(parts):
            part = some[at * len(some) // parts : (at + 1) * len(some) // parts]
            once.append(attrs.evolve(topic, **{rule.inner: part}))
        if number % LOOKED_AT_MAX == 0:
            rest()
    return once


def _nobody() -> None:
    """Nothing waits for its end."""


class _Serving:
    """One request being served."""

    def __init__(
        self,
        portions: Portions,
        broker: Host,
        request: Request,
        handler: Callable[[Request], None],
        rule: SplitRule,
        items: list[Any],
    ) -> None:
        self.broker, self.request, self.rule = broker, request, rule
        self._handler, self._all = handler, portions
        self._portions = _cut(items, rule)
        self._parts: list[_Part] = []
        self._left = 0
        self._all_begun = self._over = False
        self._bytes = 0
        self.end: Callable[[], None] = _nobody
        message: Any = request.message
        self.fetch_left = message.max_bytes if request.header.api_key == ApiKey.FETCH else None

    def next_portion(self) -> bool:
        """Serve the next portion; return whether there are more."""
        portion = next(self._portions, None)
        if portion == [] and not self._over:
            return True
        if portion is None or self._over:
            self._all_begun = True
            self.request.reply.read_on()
            self._maybe_join()
            return False
        request = self.request
        part = _Part(self)
        self._parts.append(part)
        self._left += 1
        changed: dict[str, Any] = {self.rule.asked: portion}
        if self.fetch_left is not None:
            changed |= {"max_wait_ms": 0, "max_bytes": max(0, self.fetch_left)}
        message: Any = request.message
        message = attrs.evolve(message, **changed)
        one = attrs.evolve(request, message=message, reply=part)
        try:
            self._handler(one)
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self.broker.on_bug(f"a portion of {APIS[request.header.api_key].name}", error)
            self.close(f"internal error: {type(error).__name__}")
        return True

    def answered(self, size: int) -> None:
        self._left -= 1
        if self.fetch_left is not None:
            self.fetch_left -= size
        if self._over:
            return
        self._bytes += size
        self._all.bytes += size
        if self._bytes > self._answer_bytes_max:
            self.close(f"its answer would have more than {self._bytes} bytes")
        self._maybe_join()

    def _maybe_join(self) -> None:
        if not self._all_begun or self._left or self._over:
            return
        self._over = True
        parts = [b"".join(part.chunks) for part in self._parts if part.chunks is not None]
        self._parts.clear()
        if not parts:
            self._ended()
            self.request.reply.nothing()
        else:
            items = getattr(self.request.message, self.rule.asked)
            rest = self.broker.background.rest
            work = partial(_joined, self.request.header, self.rule, parts, items, rest)
            self.broker.background.submit(work, self._complete)

    @property
    def _answer_bytes_max(self) -> int:
        if self.fetch_left is not None:
            return 1 << 40  # each part has taken the room there was
        return min(ANSWER_BYTES_MAX, ROOMS_MAX * self.request.reply.room)

    def _complete(self, chunks: list[Buffer]) -> None:
        """A fetch that found nothing answers no sooner than it would have undivided."""
        self._ended()
        wait_ms = 0
        if self.fetch_left is not None:
            message: Any = self.request.message
            waits = self.fetch_left > message.max_bytes - message.min_bytes
            wait_ms = min(message.max_wait_ms, self.broker.config.fetch_wait_ms_max) * waits
        if wait_ms > 0:
            at = self.broker.groups.now().boot_ns + wait_ms * MS
            self.broker.timers.call_at(at, partial(self.request.reply.complete, chunks))
        else:
            self.request.reply.complete(chunks)

    def _ended(self) -> None:
        """Release everything held for it."""
        self._all.bytes -= self._bytes
        self._bytes = 0
        end, self.end = self.end, _nobody
        end()

    def close(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        self._parts.clear()
        self._ended()
        self.request.reply.close(reason)


class _Part(ReplyAround):
    """The answer to one portion."""

    def __init__(self, serving: _Serving) -> None:
        self._serving = serving
        super().__init__(serving.request.reply)
        self.chunks: list[Buffer] | None = None

    @property
    def room(self) -> int:
        left = self._serving.fetch_left
        return self._reply.room if left is None or left > 0 else 0

    def complete(self, chunks: list[Buffer]) -> None:
        assert self.chunks is None, "a request is answered once"
        self.chunks = chunks
        self._serving.answered(sum(map(len, chunks)))

    def nothing(self) -> None:
        self._serving.answered(0)

    def close(self, reason: str) -> None:
        self._serving.close(reason)


def _joined(
    header: RequestHeader,
    rule: SplitRule,
    parts: list[bytes],
    asked: list[Any],
    rest: Callable[[], None],
) -> list[Buffer]:
    """One answer made of those to the portions, in their order. The request's items are no longer
    needed; freeing them takes a while, so it is done here."""
    while asked:
        del asked[-LOOKED_AT_MAX:]
    answers: list[Any] = []
    since_rest = 0
    for part in parts:
        answers.append(decode_response(header.api_key, header.api_version, memoryview(part)[4:]))
        since_rest += len(part)
        if since_rest > REST_BYTES:
            since_rest = 0
            rest()
    whole = answers[0]
    items: list[Any] = []
    for answer in answers:
        for one in getattr(answer, rule.answered):
            last = items[-1] if items and rule.inner else None
            if last is not None and _same(last, one):
                getattr(last, rule.answered_inner).extend(getattr(one, rule.answered_inner))
                if rule.innermost:
                    last.error_code = last.error_code or one.error_code
            else:
                items.append(one)
        if answer is not whole and hasattr(whole, "node_endpoints"):
            known = {one.node_id for one in whole.node_endpoints}
            whole.node_endpoints += [
                one for one in answer.node_endpoints if one.node_id not in known
            ]
        with suppress(AttributeError):
            whole.error_code = whole.error_code or answer.error_code
        with suppress(AttributeError):
            whole.throttle_time_ms = max(whole.throttle_time_ms, answer.throttle_time_ms)
    if rule.innermost:
        for one in items:
            _join_cut(one, rule)
    setattr(whole, rule.answered, items)
    return encode_response(header, whole)


def _join_cut(one: Any, rule: SplitRule) -> None:  # noqa: ANN401  an item of any answer
    """Put together the inner items that were cut because of what they name."""
    rows: list[Any] = []
    for row in getattr(one, rule.answered_inner):
        parts = getattr(rows[-1], rule.answered_innermost) if rows else []
        if parts and len(parts) % PARTS_MAX == 0 and _same(rows[-1], row):
            parts.extend(getattr(row, rule.answered_innermost))
        else:
            rows.append(row)
    setattr(one, rule.answered_inner, rows)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401  items of any answer
    """Whether both are about one topic or group: all fields that name it are equal."""
    return all(
        getattr(one, field.name) == getattr(other, field.name)
        for field in attrs.fields(type(one))
        if field.name in ("name", "topic", "topic_id", "topic_name", "group_id")
    )
