"""An ordered loss: what is damaged in a group of one member is replaced by NoOps."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from paxos.ids import GroupId, NodeId, Now, Slot
from paxos.step import Step
from runtime.membership.local_records import UnsafeOrder
from tests.runtime.doubles import Recorder

if TYPE_CHECKING:
    from paxos.replica import Replica
    from storage.log.wal import Wal

NOW = Now(0, 0, True)
ALONE = (NodeId(1),)


def test_nothing_is_replaced_any_more_once_others_have_the_group_too() -> None:
    """Damage that is found later, in a slot that is not applied yet, exists at the new members."""
    lost: list[Slot] = []
    replica = SimpleNamespace(
        me=NodeId(1),
        group=GroupId(1),
        members=ALONE,
        learner=SimpleNamespace(applied=Slot(4)),
        learn=lambda _now, slot, _entry, _step: lost.append(slot),
    )
    wal = SimpleNamespace(slots=lambda _group: range(1, 9), readable_to=lambda *_slots: Slot(4))
    order = UnsafeOrder((), cast("Wal", wal), Recorder().journal)
    order._alone.append(cast("Replica", replica))
    order.tick(NOW, {}, Step())
    assert lost == [5]
    replica.members = (NodeId(1), NodeId(2), NodeId(3))
    order.tick(NOW, {}, Step())
    assert lost == [5]
