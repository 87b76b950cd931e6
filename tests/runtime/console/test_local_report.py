"""What a node reports of the consumer groups that it coordinates: clients choose all of it."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from coordinator.model import ConsumerGroupId, ListedGroup, MemberId
from coordinator.replicated.stored import StoredGroup
from paxos.ids import GroupId
from runtime.console.local_report import _consumers, _Walk
from runtime.console.messages import CONSUMERS_MAX, Consumers, Data, decode, encode_tell

if TYPE_CHECKING:
    from broker.state_machine.machine import GroupMachine


def reported(stored: StoredGroup, walk: _Walk) -> Consumers | None:
    """The report of one consumer group."""
    machine = SimpleNamespace(consumer_groups={stored.name: stored})
    listed = ListedGroup(stored.name, "consumer", "Stable")
    return _consumers(GroupId(1), listed, cast("GroupMachine", machine), walk)


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_any_offset_that_a_client_commits_can_be_reported(offset: int) -> None:
    """As in Kafka, nobody checks it. The node that asked closed the link: no node says that."""
    stored = StoredGroup(ConsumerGroupId("readers"))
    stored.offsets["orders"] = {0: SimpleNamespace(offset=offset)}  # type: ignore[dict-item]
    told = reported(stored, _Walk())
    assert told is not None
    assert decode(memoryview(encode_tell(Data(consumers=(told,))))) == Data(consumers=(told,))


def test_names_of_any_length_do_not_make_a_report_too_long() -> None:
    """1,024 bytes of each client's name are kept, and JSON makes them three times as long."""
    walk, told = _Walk(), list[Consumers]()
    client = SimpleNamespace(client_id="\u00e9" * 512, client_host="127.0.0.1")
    for number in range(CONSUMERS_MAX):
        stored = StoredGroup(ConsumerGroupId(f"{number} " + "\u00e9" * 500))
        stored.members = {MemberId(str(one)): client for one in range(20)}  # type: ignore[misc]
        one = reported(stored, walk)
        if one is not None:
            told.append(one)
    assert walk.cut
    assert told
    data = Data(consumers=tuple(told), cut=1)
    assert decode(memoryview(encode_tell(data))) == data
