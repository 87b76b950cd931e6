"""Who asks for everything (an array that is null, or nothing named at all) holds the loop no longer
than who names as much: measured as in test_stretches, on a node with ten thousand partitions."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.hostile_list import Dear, _frame
from tests.broker.requests.test_stretches import TRIES, Measured, slowness
from tests.broker.requests.test_stretches import (
    _collects_as_a_node as _collects_as_a_node,  # a fixture
)
from wire.apis import APIS, Api, ApiKey
from wire.codec.schema import fields_of
from wire.messages import topics

STRETCH_MS_MAX: Final = 4.0
"""In one piece the dearest of them took 12 ms with so many partitions, and 350 on a real node."""
TOPICS: Final = 40
PARTITIONS: Final = 250
NAMES_NOTHING: Final = (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER)


def everything(key: int, api: Api) -> Iterator[Dear]:
    """Requests of each version in which all that may be null is null."""
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


@pytest.mark.parametrize("dear", ALL, ids=[dear.name.replace(" ", "-") for dear in ALL])
def test_nobody_waits_for_who_asks_for_everything(measured: Measured, dear: Dear) -> None:
    longest = measured.longest_ms(dear)
    for _ in range(TRIES):
        allowed = STRETCH_MS_MAX * slowness()
        if longest <= allowed:
            break
        longest = min(longest, measured.longest_ms(dear))
    assert longest <= allowed
