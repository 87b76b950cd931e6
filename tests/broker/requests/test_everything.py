"""A request for everything (a null array, or no names at all) holds the loop no longer than one
that names as much: measured as in test_stretches, on a node with ten thousand partitions."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from broker.requests.steps import Steps
from tests.broker.fakes import FakeReply
from tests.broker.hostile_list import Dear, _frame
from tests.broker.requests.test_stretches import Measured, holds_nobody_up
from tests.broker.requests.test_stretches import (
    _collects_as_a_node as _collects_as_a_node,  # a fixture
)
from tests.doses import some
from wire.apis import APIS, Api, ApiKey
from wire.codec.schema import fields_of
from wire.messages import topics

STRETCH_MS_MAX: Final = 4.0
"""In one piece the most expensive took 12 ms with that many partitions, and 350 ms on a real
node."""
TOPICS: Final = 40
PARTITIONS: Final = 250
NAMES_NOTHING: Final = (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER)


def everything(key: int, api: Api) -> Iterator[Dear]:
    """Requests of each version in which everything that may be null is null."""
    for version in range(api.accepted.first, api.accepted.last + 1):
        try:
            request: Any = api.request()
        except TypeError:
            return  # something has to be named
        nulls = [
            field.name
            for field in fields_of(api.request)
            if field.spec.element is not None and field.spec.nullable.has(version)
        ]
        for name in nulls:
            setattr(request, name, None)
        if nulls or key in NAMES_NOTHING:
            yield Dear(f"{api.name} v{version}", api, version, _frame(request, version))


class Reading(FakeReply):
    """Whether the node goes on reading from the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.ever = False

    def stop_reading(self) -> None:
        self.held += 1
        self.ever = True

    def read_on(self) -> None:
        self.held -= 1


@pytest.fixture(scope="module")
def measured() -> Measured:
    made = Measured()
    for number in range(TOPICS):
        topic = topics.CreatableTopic(f"many-{number}", PARTITIONS, 1)
        made.world.ask(1, topics.CreateTopicsRequest([topic], 5_000), 5)
    return made


ALL: Final = [one for key, api in APIS.items() for one in everything(key, api)]


def test_the_dear_ones_are_among_them() -> None:
    names = {dear.name.split()[0] for dear in ALL}
    assert names >= {
        "DescribeLogDirs",
        "ElectLeaders",
        "ListPartitionReassignments",
        "Metadata",
        "OffsetFetch",
    }


@pytest.mark.parametrize("dear", some(ALL), ids=[dear.name.replace(" ", "-") for dear in some(ALL)])
def test_nobody_waits_for_who_asks_for_everything(measured: Measured, dear: Dear) -> None:
    holds_nobody_up(measured, dear, STRETCH_MS_MAX)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_more_is_read_of_a_connection_while_steps_are_left(fails: bool) -> None:
    """Otherwise hundreds of its requests would each hold what they have found so far."""
    reply = Reading()
    said: list[str] = []

    def work() -> Iterator[None]:
        yield
        assert not fails
        yield

    def on_bug(what: str, _error: Exception) -> None:
        said.append(what)

    steps = Steps(reply, work(), lambda: said.append("done"), on_bug)
    assert steps.next_portion()
    assert reply.held == 1
    if not fails:
        assert steps.next_portion()
        assert reply.held == 1
    assert not steps.next_portion()
    assert (reply.held, said) == (0, ["a step of a request" if fails else "done"])


def test_what_takes_one_step_stops_nobody() -> None:
    reply = Reading()
    assert not Steps(reply, iter(()), lambda: None, lambda *_: None).next_portion()
    assert not reply.ever
