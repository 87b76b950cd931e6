"""Scenario 23: a member change and a steal of one group exclude each other, or are ordered."""

from paxos.entry import EntryKind
from paxos.ids import NodeId
from paxos.messages import Accepted
from paxos.step import Step
from simulator.script import GROUP, Script, is_kind


def four() -> Script:
    """Nodes 0 to 2 are members, node 3 is not."""
    script = Script(nodes=4, members=3)
    script.elect(0)
    script.write_all(0, 2)
    script.chosen.members_change(GROUP)
    return script


def change(script: Script, ident: int, who: int) -> str:
    return script.node(ident).act(GROUP, "members", NodeId(who))


def test_no_member_change_while_a_steal_is_under_way() -> None:
    script = four()
    held = script.hold(source=0, where=is_kind(EntryKind.STEAL))
    script.steal(1)
    script.until(lambda: script.replica(0).suspended > 0)
    assert change(script, 0, 3) == "not master or busy"
    script.release(held)
    script.until(lambda: script.acting(1))
    assert change(script, 1, 3) == ""  # and after it, proposed by the new master
    script.until(lambda: 3 in script.replica(3).members)


def test_no_steal_while_the_members_are_changing() -> None:
    script = four()
    held = script.hold(Accepted, target=0)
    assert change(script, 0, 3) == ""
    script.steal(1)
    script.wait(20)
    assert script.aborts() in (["members are changing"], ["not master"])
    assert script.replica(0).handing_to is None
    script.release(held)
    script.until(lambda: script.replica(1).members == (0, 1, 2, 3))
    script.until(lambda: script.acting(0) and script.replica(0).ready())
    script.same_everywhere()
    script.steal(3)  # the new member may get the group once it has caught up
    script.until(lambda: script.acting(3))
    script.until_acknowledged(script.write(3, 3))


def test_one_node_at_a_time() -> None:
    script = four()
    node, replica = script.node(0), script.replica(0)
    refused = replica.change_members(node.now(), [NodeId(0), NodeId(1), NodeId(3)], Step())
    assert refused == "members change one node at a time"


def test_a_removed_member_that_missed_it_hears_of_it() -> None:
    """Found by seed 39 of the first swarm: nobody ever sent it anything."""
    script = four()
    script.isolate(2)
    assert change(script, 0, 2) == ""
    script.until(lambda: script.replica(0).members == (0, 1))
    script.wait(1_000)
    script.mend()
    script.until(lambda: script.replica(2).members == (0, 1))
