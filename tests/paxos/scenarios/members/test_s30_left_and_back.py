"""Scenario 30: a node leaves a group, drops its data of it, and comes back with nothing."""

from paxos.ids import NodeId
from paxos.messages import Promise
from paxos.timing import WINDOW_MAX
from simulator.node import hosting
from simulator.script import GROUP, Script

A, B, C, D = (NodeId(n) for n in range(4))


def without_c() -> Script:
    """C is no longer a member and has dropped everything; D has taken its place."""
    script = Script(nodes=4, members=3)
    script.elect(A)
    script.write_all(A, 3)
    script.same_everywhere()
    script.chosen.members_change(GROUP)
    for node in (D, C):
        changed(script, A, node)
    script.until(lambda: C not in script.replica(C).members)
    hosting.leave(script.node(C), GROUP)
    return script


def changed(script: Script, master: NodeId, who: NodeId) -> None:
    """The change, proposed as soon as the master may."""
    node, before = script.node(master), script.replica(master).members

    def begun() -> bool:
        return script.acting(master) and not node.act(GROUP, "members", who)

    script.until(begun)
    script.until(lambda: script.replica(master).members != before)


def test_it_learns_all_again_and_votes_before_it_is_added() -> None:
    script = without_c()
    replica = script.replica(C)
    assert replica.rejoin is not None
    assert replica.acceptor.promised > (0, -1)  # it knows which promises bind it
    script.wait(600)  # it has asked what it must not contradict
    refused = script.node(A).act(GROUP, "members", C)
    assert refused.startswith("the new member is not heard")
    script.until(lambda: script.replica(C).rejoin is None)  # idle, the master fills slots for it
    assert script.replica(C).learner.applied > WINDOW_MAX
    assert C not in script.replica(A).members
    changed(script, A, C)
    script.until(lambda: script.replica(C).members == (A, B, C, D))
    script.isolate(B)
    script.until_acknowledged(script.write(A, 4))  # with the votes of A, C and D


def test_who_counts_on_what_it_was_gets_no_vote_of_it() -> None:
    """B slept through all of it and still takes C for a member. C has forgotten what it voted for
    with A, and would let B choose something else there."""
    script = Script(nodes=4, members=3)
    script.elect(A)
    script.write_all(A, 3)
    script.same_everywhere()
    script.chosen.members_change(GROUP)
    changed(script, A, D)
    script.same_everywhere()
    script.isolate(B)
    script.write_all(A, 3, start=4)
    changed(script, A, C)
    script.until(lambda: C not in script.replica(C).members)
    hosting.leave(script.node(C), GROUP)
    for node in (A, D):  # C hears only B, and B hears only C
        for other in (B, C):
            script.cut(node, other)
            script.cut(other, node)
    script.cut(A, D)
    script.wire.connect(B, C)
    since_ns = script.loop.now_ns
    script.prepare(B)
    script.wait(1_000)
    given = [one for one in script.sent(Promise, since_ns=since_ns) if one.source == C]
    assert not given
    script.mend()
    script.same_everywhere()


def test_a_node_is_replaced_that_will_never_come_back() -> None:
    """The new node is added first, then the dead one removed: three of four keep the group
    going."""
    script = Script(nodes=4, members=3)
    script.elect(A)
    script.write_all(A, 3)
    script.crash(C)
    script.wait(2_000)
    script.chosen.members_change(GROUP)
    changed(script, A, D)
    script.until_acknowledged(script.write(A, 4))
    changed(script, A, C)
    assert script.replica(A).members == (A, B, D)
    script.isolate(B)
    script.until_acknowledged(script.write(A, 5))
