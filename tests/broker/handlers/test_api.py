"""The one entry for requests: what is advertised, what is refused, and what a bug costs."""

import pkgutil
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

import kio.schema
import pytest

from broker.api import HANDLERS, ApiTable
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded
from broker.requests.request import Request
from tests.broker.fakes import FakeReply
from tests.broker.world import CLIENT_HOST, SERVED, Asked, World
from wire.apis import APIS, ApiKey, encode_request
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.metadata import MetadataRequest
from wire.records.write_tokens import FEATURE, FEATURE_VERSION

LIBRDKAFKA_NEEDS = {
    ApiKey.PRODUCE: (0, 7),
    ApiKey.FETCH: (4, 10),
    ApiKey.METADATA: (0, 4),
    ApiKey.LIST_OFFSETS: (1, 1),
    ApiKey.FIND_COORDINATOR: (0, 0),
    ApiKey.JOIN_GROUP: (0, 0),
    ApiKey.OFFSET_COMMIT: (2, 2),
    ApiKey.OFFSET_FETCH: (1, 1),
    ApiKey.INIT_PRODUCER_ID: (0, 0),
}
"""Exact versions that older librdkafkas look for; without them they silently turn features off
(kafka.md 2)."""


def frame(message: object, version: int) -> memoryview:
    return memoryview(b"".join(encode_request(message, version, 7, "test")))[4:]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(5))
def test_what_is_advertised_is_what_is_served(version: int) -> None:
    response = World().ask(1, ApiVersionsRequest("test", "1"), version)
    features = {one.name: one.max_version for one in response.supported_features}
    assert features == ({FEATURE: FEATURE_VERSION} if version >= 3 else {})
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert set(ranges) == {int(key) for key in HANDLERS} | {int(ApiKey.API_VERSIONS)}
    assert set(ranges) <= set(APIS)
    for key, (first, last) in LIBRDKAFKA_NEEDS.items():
        assert ranges[key][0] <= first
        assert ranges[key][1] >= last


@pytest.mark.parametrize(
    ("name", "library_version", "good"),
    [
        ("a", "1", True),
        ("apache-kafka-java", "4.3.1", True),
        ("a.b-c", "1.2-3", True),
        ("", "1", False),
        ("a", "", False),
        ("a b", "1", False),
        ("a_b", "1", False),
        (".a", "1", False),
        ("a", "1-", False),
        ("a", "1+2", False),
        ("a\n", "1", False),
        ("\u00e4", "1", False),
    ],
)
def test_software_has_a_name_that_can_be_shown(name: str, library_version: str, good: bool) -> None:
    """As in Kafka, which shows the names in its metrics (KIP-511)."""
    world = World()
    for version in (3, 4):
        answer = world.ask(1, ApiVersionsRequest(name, library_version), version)
        assert answer.error_code == (ErrorCode.NONE if good else ErrorCode.INVALID_REQUEST)
        assert bool(answer.api_keys) == good


def test_a_client_from_the_future_is_told_what_it_may_ask() -> None:
    """ApiVersions v99: the answer has a version 0 body with error 35, so the client can ask again
    (KIP-511)."""
    world, asked = World(), Asked(ApiKey.API_VERSIONS, 0)
    future = bytes.fromhex("0012 0063 00000007 ffff 00")
    world[1].api.handle_frame(memoryview(future), True, CLIENT_HOST, asked.reply)
    assert asked.response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [one.api_key for one in asked.response.api_keys] == [ApiKey.API_VERSIONS]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("0000 0002 00000007 ffff", "version 2"),
        ("0003 0063 00000007 ffff", "version 99"),
        ("001b 0000 00000007 ffff", "api key 27"),
        ("0003 000c 00000007", "cut short"),
        ("", "cut short"),
    ],
)
def test_what_cannot_be_answered_closes_the_connection(head: str, reason: str) -> None:
    world, reply = World(), FakeReply()
    world[1].api.handle_frame(memoryview(bytes.fromhex(head)), True, CLIENT_HOST, reply)
    assert reply.closed is not None
    assert reason in reply.closed
    assert world[1].api.refused == 1


def test_only_what_has_a_handler_is_advertised_and_served() -> None:
    world = World()
    table = ApiTable(world[1].broker, {ApiKey.METADATA: HANDLERS[ApiKey.METADATA]})
    asked, refused = Asked(ApiKey.API_VERSIONS, 3), FakeReply()
    named = ApiVersionsRequest("test", "1")
    table.handle_frame(frame(named, 3), True, CLIENT_HOST, asked.reply)
    keys = [one.api_key for one in asked.response.api_keys]
    assert keys == [ApiKey.METADATA, ApiKey.API_VERSIONS]
    produce = memoryview(bytes.fromhex("0000 0007 00000007 ffff"))
    table.handle_frame(produce, True, CLIENT_HOST, refused)
    assert refused.closed == "api key 0 is not served"


def test_requests_are_counted_by_api() -> None:
    world = World()
    world.ask(1, MetadataRequest(None), 12)
    world.ask(1, MetadataRequest(None), 9)
    assert world[1].api.requests[ApiKey.METADATA] == 2
    assert world[1].api.requests[ApiKey.PRODUCE] == 0


def broken_now(broker: Broker, request: Request) -> None:
    raise ValueError("a bug")


def broken_later(broker: Broker, request: Request) -> None:
    deadline = broker.groups.now().boot_ns + 50_000_000
    act = guarded(broker, request, partial(broken_now, broker, request))
    broker.delayed_operations.until(lambda: False, deadline, act)


@pytest.mark.parametrize("handler", [broken_now, broken_later])
def test_a_bug_in_a_handler_costs_its_connection_only(handler: object) -> None:
    """In the handler or in a callback: it is reported with its traceback, and all others
    continue."""
    world, reply = World(), FakeReply()
    handlers = {**HANDLERS, ApiKey.DESCRIBE_CLUSTER: handler}
    table = ApiTable(world[1].broker, handlers)  # type: ignore[arg-type]
    table.handle_frame(
        memoryview(bytes.fromhex("003c 0000 00000007 ffff 00 00 00")), True, "h", reply
    )
    world.advance(100)
    assert reply.closed == "internal error: ValueError"
    [(where, error)] = world[1].bugs
    assert where == "DescribeCluster v0 from h"
    assert error.__traceback__ is not None
    world[1].bugs.clear()
    assert world.ask(1, MetadataRequest(None), 12).brokers


def test_answers_are_gathered_in_the_order_they_were_asked_for() -> None:
    got: list[list[str]] = []
    put = gather(3, lambda answers: got.append(list(answers)))
    put(2, "c")
    put(0, "a")
    assert got == []
    put(1, "b")
    assert got == [["a", "b", "c"]]
    gather(0, lambda answers: got.append(list(answers)))
    assert got[1] == []


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the table in that section of the user documentation, without the header."""
    page = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text()
    section = page[page.index(f"## {heading}\n") + 3 :].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[1:]]


def kafkas_keys() -> dict[int, str]:
    """Every API of Kafka's, from an independent source."""
    found = {}
    for package in pkgutil.iter_modules(kio.schema.__path__, "kio.schema."):
        if package.ispkg:
            for version in pkgutil.iter_modules(import_module(package.name).__path__):
                with suppress(ModuleNotFoundError):  # data that is no request
                    module = import_module(f"{package.name}.{version.name}.request")
                    found |= {
                        int(one.__api_key__): name.removesuffix("Request")
                        for name, one in vars(module).items()
                        if name.endswith("Request") and hasattr(one, "__api_key__")
                    }
    return found


def test_the_page_for_users_names_all_there_is_and_is_not() -> None:
    """Each of Kafka's APIs is in one of the two tables, under its name."""
    names_of = kafkas_keys()
    refused: list[int] = []
    for keys, names, _ in rows_under("Not served"):
        numbers: list[int] = []
        for word in keys.split(", "):
            first, _, last = word.partition("-")
            numbers += range(int(first), int(last or first) + 1)
        refused += numbers
        listed = names.removeprefix("transactions: ").removeprefix("telemetry: ").split(", ")
        if len(listed) == len(numbers):
            assert [names_of[number] for number in numbers] == listed
    served = [int(key) for key, *_ in rows_under("Served")]
    assert sorted(served + refused) == sorted(names_of)


def test_the_page_for_users_says_what_is_true() -> None:
    told = [tuple(row[:3]) for row in rows_under("Served")]
    first_last = [(api, api.advertised) for api in SERVED]
    assert told == [
        (str(int(api.key)), api.name, f"{first}-{last}") for api, (first, last) in first_last
    ]
