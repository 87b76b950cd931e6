"""Quotas without a node: whose they are, and that a client that waits keeps to its rate."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.registry.quotas import ABSENT, DEFAULT, NAME_CHARS_MAX, Entity, QuotaKey, Quotas
from broker.security import quotas as module
from broker.security.principal import ANONYMOUS, Principal
from broker.security.quotas import BURST_NS, STATES_MAX, ClientQuotas, S

RATE = QuotaKey.PRODUCER_BYTE_RATE


@attrs.define
class World:
    quotas: Quotas = attrs.Factory(dict)
    now_ns: int = 5 * S

    def client_quotas(self) -> ClientQuotas:
        return ClientQuotas(lambda: self.quotas, lambda: self.now_ns)


def reference(quotas: Quotas, user: str, client_id: str, key: QuotaKey) -> float | None:
    """Kafka's order, written out as in its documentation (`design.html`, "Quota Configuration")."""
    u, c, both = (user,), (client_id,), DEFAULT
    for entity in (
        Entity(u, c),
        Entity(u, both),
        Entity(u),
        Entity(both, c),
        Entity(both, both),
        Entity(both),
        Entity(ABSENT, c),
        Entity(ABSENT, both),
    ):
        if key in quotas.get(entity, {}):
            return quotas[entity][key]
    return None


names = st.sampled_from([ABSENT, DEFAULT, ("a",), ("b",)])
tables = st.dictionaries(
    st.builds(Entity, names, names),
    st.dictionaries(st.sampled_from(QuotaKey), st.floats(1, 1e9), min_size=1),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(tables, st.sampled_from("abc"), st.sampled_from("abc"))
def test_the_most_specific_quota_holds(quotas: Quotas, user: str, client_id: str) -> None:
    limits = World(quotas).client_quotas().of(user, client_id)
    expected = reference(quotas, user, client_id, RATE)
    if limits is None or limits.produce is None:
        assert expected is None
    else:
        assert limits.produce.rate == expected


def test_who_shares_a_bucket() -> None:
    """A quota of a user is shared by its clients; a default is each user's own."""
    quotas = World({Entity(("a",)): {RATE: 10.0}, Entity(DEFAULT): {RATE: 5.0}}).client_quotas()

    def bucket(user: str, client_id: str) -> object:
        limits = quotas.of(user, client_id)
        assert limits is not None
        return limits.produce

    assert bucket("a", "x") is bucket("a", "y")
    assert bucket("b", "x") is bucket("b", "y")
    assert bucket("b", "x") is not bucket("c", "x")


def test_nobody_else_has_limits() -> None:
    quotas = World({Entity(("a",)): {RATE: 10.0}}).client_quotas()
    assert quotas.of("b", "x") is None


steps = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3 * S)), max_size=60)


@given(st.integers(1_000, 50_000), steps)
def test_whoever_waits_keeps_to_the_rate_in_any_window(
    rate: int, script: list[tuple[int, int]]
) -> None:
    """Requests of so many bytes, each after the wait it was told and a rest of its own."""
    world = World({Entity(("a",)): {RATE: float(rate)}})
    quotas = world.client_quotas()
    limits = quotas.of("a", "x")
    assert limits is not None
    assert limits.produce is not None
    sent: list[tuple[int, int]] = []
    for size, rest in script:
        world.now_ns += rest
        sent.append((world.now_ns, size))
        wait = quotas.charge(limits.produce, size)
        assert wait <= size * S / rate + BURST_NS, "it waits only for what it has sent"
        world.now_ns += wait
    for begin in range(len(sent)):
        total = 0
        for at, size in sent[begin:]:
            assert total <= rate * (at - sent[begin][0] + BURST_NS) / S + 1
            total += size


@given(st.integers(1_000, 50_000), st.integers(2, 50))
def test_whoever_stays_below_the_rate_never_waits(rate: int, count: int) -> None:
    world = World({Entity(("a",)): {RATE: float(rate)}})
    quotas = world.client_quotas()
    limits = quotas.of("a", "x")
    assert limits is not None
    assert limits.produce is not None
    for _ in range(count):
        assert quotas.charge(limits.produce, rate // 10) == 0
        world.now_ns += S // 10
    assert quotas.throttled[RATE] == 0


def test_a_changed_quota_holds_for_the_next_request() -> None:
    world = World({Entity(("a",)): {RATE: 10.0}})
    quotas = world.client_quotas()
    first = quotas.of("a", "x")
    assert first is not None
    assert first.produce is not None
    assert quotas.charge(first.produce, 100) == 9 * S
    world.quotas = {Entity(("a",)): {RATE: 1e9}}
    second = quotas.of("a", "x")
    assert second is not None
    assert second.produce is first.produce, "it still owes what it has sent"
    assert second.produce.rate == 1e9
    world.quotas = {}
    assert quotas.of("a", "x") is None


def test_clients_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that owe most are forgotten last."""
    assert STATES_MAX >= 1_000
    monkeypatch.setattr(module, "STATES_MAX", 8)
    quotas = World({Entity(ABSENT, DEFAULT): {RATE: 10.0}}).client_quotas()
    debtor = quotas.of("u", "debtor")
    assert debtor is not None
    assert debtor.produce is not None
    quotas.charge(debtor.produce, 1_000)
    for number in range(50):
        limits = quotas.of("u", f"client-{number}")
        assert limits is not None
        assert limits.produce is not None
        quotas.charge(limits.produce, 1)
    assert len(quotas._buckets) <= 8
    assert len(quotas._limits) <= 8
    again = quotas.of("u", "debtor")
    assert again is not None
    assert again.produce is debtor.produce


def test_long_names_of_clients_take_no_more_memory() -> None:
    quotas = World({Entity(ABSENT, DEFAULT): {RATE: 10.0}}).client_quotas()
    quotas.of("u", "x" * 30_000)
    assert max(len(name) for one in quotas._limits for name in one) == NAME_CHARS_MAX
    names = (name for _, *parts in quotas._buckets for part in parts for name in part)
    assert max(map(len, names)) == NAME_CHARS_MAX


def test_request_time_is_a_part_of_one_thread() -> None:
    world = World({Entity(("a",)): {QuotaKey.REQUEST_PERCENTAGE: 50.0}})
    quotas = world.client_quotas()
    limits = quotas.of("a", "x")
    assert limits is not None
    assert limits.request is not None
    waits = [quotas.charge(limits.request, S // 4) for _ in range(6)]
    assert waits == [0, 0, S // 2, S, S, S], "half a second for each quarter, at most a second"


def test_addresses() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    world = World({Entity(ip=("::1",)): {key: 2.0}})
    quotas = world.client_quotas()
    assert quotas.connections_per_s("::1") == 2
    assert quotas.connections_per_s("::2") is None
    world.quotas = {**world.quotas, Entity(ip=DEFAULT): {key: 7.0}}
    assert quotas.connections_per_s("::2") == 7


def test_principals_are_written_as_in_kafka() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a,OU=b:c") == Principal("User", "CN=a,OU=b:c")
    for wrong in ("", "alice", ":alice", "User:"):
        with pytest.raises(ValueError, match="not a principal"):
            Principal.parse(wrong)
