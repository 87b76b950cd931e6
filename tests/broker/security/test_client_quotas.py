"""Quotas by the protocol (KIP-546), and what they do to a client that has one."""

from typing import Any

import pytest

from balancer.registry.quotas import AlterQuotas, Entity, QuotaChange, QuotaKey
from broker.requests.throttling import with_throttle
from paxos.ids import MS
from tests.broker.batches import batch
from tests.broker.data_world import DataWorld, want
from tests.broker.security.rulings import ALICE as PRINCIPAL
from tests.broker.security.rulings import Ruled, rule
from tests.broker.world import SERVED, World
from wire.acls import Operation, PatternType, ResourceType
from wire.apis import RequestHeader, decode_response, encode_response
from wire.error_codes import ErrorCode
from wire.messages import metadata, security, topics

PREFIXED = PatternType.PREFIXED
USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(
    entity: list[tuple[str, str | None]], *ops: tuple[str, float | None]
) -> security.AlterQuotaEntry:
    return security.AlterQuotaEntry(
        [security.QuotaEntity(*one) for one in entity],
        [security.QuotaChange(key, value or 0.0, value is None) for key, value in ops],
    )


def alter(world: World, *entries: Any, check: bool = False, version: int = 1) -> list[int]:
    answer = world.ask(1, security.AlterClientQuotasRequest(list(entries), check), version)
    assert [one.entity for one in answer.entries] == [one.entity for one in entries]
    return [one.error_code for one in answer.entries]


def describe(world: World, *filters: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [security.QuotaFilter(*one) for one in filters]
    answer = world.ask(2, security.DescribeClientQuotasRequest(rows, strict), 1)
    if answer.error_code:
        return answer.error_code
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries
    }


ALICE = ((USER, "alice"),)
ALICE_ANY = ((USER, "alice"), (CLIENT, None))
EVERYBODY = ((USER, None),)
ADDRESS = ((IP, "198.51.100.7"),)


def told() -> World:
    world = World()
    assert alter(
        world,
        entry(list(ALICE), ("producer_byte_rate", 1024.0), ("request_percentage", 12.5)),
        entry(list(ALICE_ANY), ("consumer_byte_rate", 2048.0)),
        entry(list(EVERYBODY), ("controller_mutation_rate", 0.5)),
        entry(list(ADDRESS), ("connection_creation_rate", 5.0)),
    ) == [0, 0, 0, 0]
    return world


def test_what_was_set_is_described_by_every_node() -> None:
    world = told()
    assert describe(world)[ALICE] == {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert set(describe(world)) == {ALICE, ALICE_ANY, EVERYBODY, ADDRESS}
    assert alter(world, entry(list(ALICE), ("producer_byte_rate", None))) == [0]
    assert describe(world)[ALICE] == {"request_percentage": 12.5}
    assert alter(world, entry(list(ALICE), ("request_percentage", None))) == [0]
    assert ALICE not in describe(world)


def test_filters() -> None:
    world = told()
    assert set(describe(world, (USER, EXACT, "alice"))) == {ALICE, ALICE_ANY}
    assert set(describe(world, (USER, EXACT, "alice"), strict=True)) == {ALICE}
    assert set(describe(world, (USER, DEFAULT, None))) == {EVERYBODY}
    assert set(describe(world, (USER, ANY, None))) == {ALICE, ALICE_ANY, EVERYBODY}
    assert set(describe(world, (USER, ANY, None), (CLIENT, DEFAULT, None))) == {ALICE_ANY}
    assert set(describe(world, (IP, ANY, None))) == {ADDRESS}
    assert describe(world, (USER, EXACT, "bob")) == {}


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, ANY, None), (USER, ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([(USER, EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_kafka_refuses(filters: Any, error: ErrorCode) -> None:
    assert describe(World(), *filters) == error


@pytest.mark.parametrize(
    "wrong",
    [
        entry([], ("producer_byte_rate", 1.0)),
        entry([("group", "g")], ("producer_byte_rate", 1.0)),
        entry([(USER, "")], ("producer_byte_rate", 1.0)),
        entry([(USER, "a"), (USER, "b")], ("producer_byte_rate", 1.0)),
        entry([(USER, "a"), (IP, "::1")], ("connection_creation_rate", 1.0)),
        entry([(USER, "a")], ("fetch_rate", 1.0)),
        entry([(USER, "a")], ("producer_byte_rate", 0.5)),
        entry([(USER, "a")], ("producer_byte_rate", -1.0)),
        entry([(USER, "a")], ("request_percentage", float("nan"))),
        entry([(USER, "a")], ("request_percentage", float("inf"))),
        entry([(USER, "a")], ("producer_byte_rate", 2.0**63)),
        entry([(USER, "a")], ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)),
        entry([(USER, "a")], ("connection_creation_rate", 1.0)),
        entry([(IP, "::1")], ("producer_byte_rate", 1.0)),
        entry([(IP, "example")], ("connection_creation_rate", 1.0)),
    ],
)
def test_what_kafka_refuses_is_refused_and_the_rest_is_done(wrong: Any) -> None:
    world = World()
    good = entry([(USER, "good")], ("producer_byte_rate", 7.0))
    assert alter(world, wrong, good) == [ErrorCode.INVALID_REQUEST, 0]
    assert set(describe(world)) == {((USER, "good"),)}


def test_an_entity_named_twice_and_a_mere_check() -> None:
    world = World()
    one = entry([(USER, "a")], ("producer_byte_rate", 7.0))
    assert alter(world, one, one) == [ErrorCode.INVALID_REQUEST] * 2
    assert alter(world, one, check=True) == [0]
    assert describe(world) == {}


# -- being throttled -------------------------------------------------------------------------------


def limit(world: World, key: QuotaKey, rate: float, client: str = "test") -> None:
    world.run(AlterQuotas((QuotaChange(Entity(client_id=(client,)), {key: rate}),)))


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_a_throttle_time_gets_into_every_answer_that_has_one(api: Any) -> None:
    for version in range(api.accepted.first, api.accepted.last + 1):
        header = RequestHeader(api.key, version, 7, "c", 0)
        plain = encode_response(header, api.response())
        before = decode_response(api.key, version, memoryview(b"".join(plain))[4:])
        after_bytes = b"".join(with_throttle(header, encode_response(header, api.response()), 77))
        assert int.from_bytes(after_bytes[:4], "big") == len(after_bytes) - 4
        after = decode_response(api.key, version, memoryview(after_bytes)[4:])
        if hasattr(before, "throttle_time_ms"):
            before.throttle_time_ms = 77
            marked = b"".join(encode_response(header, before))
            before = decode_response(api.key, version, memoryview(marked)[4:])
        assert after == before


def test_a_producer_ahead_of_its_rate_is_told_and_not_read() -> None:
    """No error; on the general path, on the fast path, and again after the wait."""
    world = DataWorld()
    limit(world, QuotaKey.PRODUCER_BYTE_RATE, 100.0)
    now = world.cluster.clock
    for _ in range(4):
        asked = world.begin_produce(1, {0: batch("x" * 300)})
        world.settle()
        answer = asked.response
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        wait_ms = (asked.reply.muted_until_ns - now.boot_ns) // MS
        assert 2_000 < wait_ms < 60_001
        assert abs(answer.throttle_time_ms - wait_ms) <= 1
        now.boot_ns = asked.reply.muted_until_ns
    assert world[1].broker.quotas.throttled[QuotaKey.PRODUCER_BYTE_RATE] == 4


def test_others_beside_it_are_not_throttled() -> None:
    world = DataWorld()
    limit(world, QuotaKey.PRODUCER_BYTE_RATE, 1.0, client="somebody else")
    for _ in range(3):
        asked = world.begin_produce(1, {0: batch("x" * 300)})
        world.settle()
        assert asked.response.throttle_time_ms == 0
        assert not asked.reply.muted_until_ns


def test_request_time_is_charged_for_any_request() -> None:
    world = World()
    limit(world, QuotaKey.REQUEST_PERCENTAGE, 1e-6)
    limits = world[1].broker.quotas.of("ANONYMOUS", "test")
    assert limits is not None
    assert limits.request is not None
    limits.request.charge(1e9, world.cluster.clock.boot_ns)  # the clock of this world stands still
    asked = world.send(1, metadata.MetadataRequest(topics=None), 12)
    assert asked.response.throttle_time_ms == 1_000
    assert asked.reply.muted_until_ns == world.cluster.clock.boot_ns + 1_000 * MS


def test_without_an_answer_a_producer_is_not_read_either() -> None:
    world = DataWorld()
    limit(world, QuotaKey.PRODUCER_BYTE_RATE, 100.0)
    asked = world.begin_produce(1, {0: batch("x" * 300)}, acks=0)
    world.settle()
    assert asked.reply.silent
    assert asked.reply.muted_until_ns > world.cluster.clock.boot_ns


def test_a_consumer_ahead_of_its_rate_gets_its_records_and_is_not_read() -> None:
    """As much as the rate allows in a second, and at least one batch."""
    world = DataWorld()
    for _ in range(5):
        world.produce(1, 0, batch("x" * 300))
    limit(world, QuotaKey.CONSUMER_BYTE_RATE, 100.0)
    asked = world.begin_fetch(1, want(0, 0), max_wait_ms=0)
    answer = asked.response
    data = answer.responses[0].partitions[0]
    assert data.error_code == ErrorCode.NONE
    assert 300 < len(data.records) < 600, "one batch"
    wait_ms = (asked.reply.muted_until_ns - world.cluster.clock.boot_ns) // MS
    assert abs(answer.throttle_time_ms - wait_ms) <= 1
    assert wait_ms > 1_000


@pytest.mark.parametrize(("version", "refused"), [(5, False), (6, True), (7, True)])
def test_changes_of_topics(version: int, refused: bool) -> None:
    """Newer clients try again by themselves, older ones only wait (KIP-599)."""
    world = World()
    limit(world, QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    errors = []
    for name in "abc":
        asked = [topics.CreatableTopic(name, 20, 3)]
        answer = world.ask(1, topics.CreateTopicsRequest(asked, 1_000), version)
        errors.append(answer.topics[0].error_code)
        assert answer.throttle_time_ms > 8_000
    expected = ErrorCode.THROTTLING_QUOTA_EXCEEDED if refused else ErrorCode.NONE
    assert errors == [ErrorCode.NONE, expected, expected]


def test_a_topic_that_is_denied_frees_nobody_from_the_quota_for_the_others() -> None:
    """The reply that takes in what the rules refuse is around the one that measures."""
    ruled = Ruled(World())
    ruled.allow(rule(Operation.CREATE, ResourceType.TOPIC, "mine", pattern_type=PREFIXED))
    limit(ruled.world, QuotaKey.CONTROLLER_MUTATION_RATE, 1.0, str(PRINCIPAL))
    errors = []
    for number in range(2):
        named = [f"mine-{number}", "other"]
        asked = [topics.CreatableTopic(name, 20, 3) for name in named]
        answer = ruled.ask(topics.CreateTopicsRequest(asked, 1_000), 7)
        errors.append({one.name: one.error_code for one in answer.topics})
    denied, used_up = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert errors[0] == {"mine-0": ErrorCode.NONE, "other": denied}
    assert errors[1] == {"mine-1": used_up, "other": denied}
