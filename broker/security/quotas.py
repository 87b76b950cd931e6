"""How much clients may do, and for how long they have to wait (KIP-124, 219, 546, 599, 612).

A quota is one node's: a client that talks to three nodes may do three times as much, as in Kafka.
For each thing that is limited, the most specific entity that limits it holds (`_PRECEDENCE`). Whom
it names shares one bucket: a quota for a user alone is shared by all of the user's clients, a
default is a bucket of its own for each of those it holds for.

A bucket is kept as the time at which it would be full again. What is charged moves that time
on; a client waits while it is further away than the burst. So in any time T a client that waits
is charged at most `rate * (T + burst)` and one more request, and it waits for as long as it is
ahead: whoever stays below the rate never waits. Nothing is ever refused, except changes of topics
where the client's version of the protocol has an error for it.
"""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from balancer.registry.quotas import (
    ABSENT,
    DEFAULT,
    NAME_CHARS_MAX,
    Entity,
    Name,
    QuotaKey,
    Quotas,
)

S: Final = 1_000_000_000
BURST_NS: Final = S
"""A client that was idle may be ahead of its rate by as much as it could have sent in this time."""
MUTATIONS_BURST_NS: Final = 11 * S
"""The same for partitions: Kafka's 11 samples of one second."""
WAIT_NS_MAX: Final = 60 * S
"""The longest that one request makes a client wait; it remains ahead of its rate by the rest."""
REQUEST_WAIT_NS_MAX: Final = S
"""The longest wait for the sake of request time: Kafka's window."""
STATES_MAX: Final = 10_000
"""Clients and buckets that are remembered; beyond it those that are full, and then those that would
be full soonest, are forgotten."""

_BURSTS: Final = {QuotaKey.CONTROLLER_MUTATION_RATE: MUTATIONS_BURST_NS}
_WAITS: Final = {QuotaKey.REQUEST_PERCENTAGE: REQUEST_WAIT_NS_MAX}


def _precedence(user: Name, client_id: Name) -> Iterator[Entity]:
    """What may limit this client, most specific first: Kafka's order."""
    for one in (user, DEFAULT):
        for client in (client_id, DEFAULT, ABSENT):
            yield Entity(one, client)
    for client in (client_id, DEFAULT):
        yield Entity(ABSENT, client)


@attrs.define(eq=False)
class Bucket:
    """What one entity has used. `rate` is a second's: of bytes, of partitions, or of nanoseconds of
    one thread."""

    key: QuotaKey
    rate: float
    full_at_ns: int = 0

    def charge(self, amount: float, now_ns: int) -> None:
        self.full_at_ns = max(self.full_at_ns, now_ns) + int(amount * S / self.rate)

    def wait_ns(self, now_ns: int) -> int:
        """How long whoever has charged it has to wait; 0 if it is not ahead of its rate."""
        ahead = self.full_at_ns - now_ns - _BURSTS.get(self.key, BURST_NS)
        return min(max(0, ahead), _WAITS.get(self.key, WAIT_NS_MAX))


@attrs.frozen(eq=False)
class Limits:
    """The buckets of one client; None where nothing limits it."""

    produce: Bucket | None
    fetch: Bucket | None
    request: Bucket | None
    mutation: Bucket | None

    @property
    def fetch_bytes(self) -> int:
        """How large an answer may be so that its reader need not wait long; at least 1."""
        return 1 << 62 if self.fetch is None else max(1, int(self.fetch.rate * BURST_NS / S))


_OF_CLIENTS: Final = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
"""In the order of `Limits`."""


class ClientQuotas:
    """The quotas of one node's clients. `quotas` returns the registry's, `now_ns` the time."""

    def __init__(self, quotas: Callable[[], Quotas], now_ns: Callable[[], int]) -> None:
        self._quotas, self._now_ns = quotas, now_ns
        self._known: Quotas = {}
        self._limits: dict[tuple[str, str], Limits | None] = {}
        self._buckets: dict[tuple[QuotaKey, Name, Name], Bucket] = {}
        self.throttled = dict.fromkeys(_OF_CLIENTS, 0)
        """Requests whose client had to wait, by what was limited."""
        self.throttled_ns = dict.fromkeys(_OF_CLIENTS, 0)
        """For how long, in all."""

    def of(self, user: str, client_id: str) -> Limits | None:
        """What limits this client; None: nothing."""
        if self._quotas() is not self._known:
            self._known = self._quotas()
            self._limits.clear()
        client = user, client_id[:NAME_CHARS_MAX]  # no quota has a longer name
        try:
            return self._limits[client]
        except KeyError:
            return self._learn(client)

    def _learn(self, client: tuple[str, str]) -> Limits | None:
        if len(self._limits) >= STATES_MAX:
            self._limits.clear()
        names = (client[0],), (client[1],)
        buckets = [self._bucket(key, *names) for key in _OF_CLIENTS]
        limits = Limits(*buckets) if any(buckets) else None
        self._limits[client] = limits
        return limits

    def _bucket(self, key: QuotaKey, user: Name, client_id: Name) -> Bucket | None:
        for entity in _precedence(user, client_id):
            rate = self._known.get(entity, {}).get(key)
            if rate is not None:
                break
        else:
            return None
        if key is QuotaKey.REQUEST_PERCENTAGE:
            rate *= S / 100
        shared = (key, user if entity.user else ABSENT, client_id if entity.client_id else ABSENT)
        bucket = self._buckets.get(shared)
        if bucket is None:
            if len(self._buckets) >= STATES_MAX:
                self._forget()
            bucket = self._buckets[shared] = Bucket(key, rate)
        bucket.rate = rate
        return bucket

    def _forget(self) -> None:
        now = self._now_ns()
        left = {one: bucket for one, bucket in self._buckets.items() if bucket.full_at_ns > now}
        if len(left) > STATES_MAX // 2:
            latest = sorted(left, key=lambda one: left[one].full_at_ns)[-STATES_MAX // 2 :]
            left = {one: left[one] for one in latest}
        self._buckets = left
        self._limits.clear()

    def charge(self, bucket: Bucket, amount: float) -> int:
        """Charge the bucket; how long its client has to wait now, in nanoseconds."""
        now = self._now_ns()
        bucket.charge(amount, now)
        wait = bucket.wait_ns(now)
        if wait:
            self.throttled[bucket.key] += 1
            self.throttled_ns[bucket.key] += wait
        return wait

    def connections_per_s(self, host: str) -> float | None:
        """How many connections a second this address may open; None: no quota says."""
        quotas = self._quotas()
        for entity in (Entity(ip=(host,)), Entity(ip=DEFAULT)):
            rate = quotas.get(entity, {}).get(QuotaKey.CONNECTION_CREATION_RATE)
            if rate is not None:
                return rate
        return None
