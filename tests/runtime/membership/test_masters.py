"""What a node hears of groups it does not host: valid for as long as a lease, and no longer."""

import pytest

from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from paxos.codec import PeerError
from paxos.ids import MS, REGISTRY_GROUP, Epoch, GroupId, NodeId, Now, Slot
from runtime.membership.masters import (
    TELL_EVERY_NS,
    MasterClaim,
    MasterGossip,
    Masters,
    claims_for,
    decode_claims,
    encode_claims,
)
from tests.runtime.engines import Net, command

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
G = GroupId(7)
LEASE = 3_000 * MS


def at(ms: int) -> Now:
    return Now(1_000_000 * MS + ms * MS, ms * MS)


def word(epoch: int, ver: int, left_ms: int) -> MasterClaim:
    return MasterClaim(G, Epoch(epoch), Slot(ver), at(left_ms).wall_ns)


def test_words_travel() -> None:
    words = [word(1, 5, 100), MasterClaim(REGISTRY_GROUP, Epoch(2**31 - 1), Slot(2**60), 2**61)]
    assert decode_claims(memoryview(encode_claims(words))) == words
    assert decode_claims(memoryview(b"")) == []


@pytest.mark.parametrize("bad", [MasterClaim(GroupId(5000), Epoch(1), Slot(1), 1), word(0, 1, 1)])
def test_what_no_master_says_is_a_lie(bad: MasterClaim) -> None:
    with pytest.raises(PeerError, match="a master of group"):
        decode_claims(memoryview(encode_claims([bad])))
    with pytest.raises(PeerError, match="bytes about masters"):
        decode_claims(memoryview(encode_claims([bad])[1:]))


def test_a_word_is_believed_until_the_lease_ends() -> None:
    masters = Masters(LEASE)
    assert masters.hear(at(0), ONE, [word(1, 5, 1000)])
    assert not masters.hear(at(500), ONE, [word(1, 6, 1500)])  # a renewal is no news
    heard = masters.of(G, at(1499))
    assert heard is not None
    assert (heard.node, heard.epoch) == (ONE, 1)
    assert masters.of(G, at(1500)) is None
    assert list(masters.groups(at(1500))) == []
    assert masters.epoch(G) == 1  # clients have heard of it
    assert masters.hear(at(1600), ONE, [word(1, 7, 2600)])  # it is back, and that is news


def test_no_word_outlives_a_lease_whatever_the_clocks_say() -> None:
    masters = Masters(LEASE)
    masters.hear(at(0), ONE, [word(1, 5, 1_000_000)])
    assert masters.of(G, at(2999)) is not None
    assert masters.of(G, at(3000)) is None


def test_the_later_lease_wins_whoever_is_heard_last() -> None:
    masters = Masters(LEASE)
    masters.hear(at(0), TWO, [word(2, 9, 1000)])
    assert not masters.hear(at(1), ONE, [word(1, 8, 2000)])
    heard = masters.of(G, at(2))
    assert heard is not None
    assert heard.node == TWO


def test_all_are_told_of_a_change_and_each_once_a_second() -> None:
    quick = MasterGossip(renew_every_ns=200 * MS)
    told = [bool(quick.due(at(ms), [TWO])) for ms in (0, 100, 200, 399, 400)]
    assert told == [True, False, True, False, True]  # as often as such a lease is renewed
    gossip = MasterGossip()
    assert gossip.due(at(0), [TWO, THREE]) == [TWO, THREE]  # new links
    assert gossip.due(at(500), [TWO, THREE]) == []
    gossip.masters_changed()
    assert gossip.due(at(600), [TWO]) == [TWO]
    assert gossip.due(at(700), [TWO, THREE]) == [THREE]  # its link was lost in between
    later = at(600 + TELL_EVERY_NS // MS)
    assert gossip.due(later, [TWO, THREE]) == [TWO]


def test_who_has_no_copy_knows_the_master_and_forwards_to_it() -> None:
    """Three nodes and a group that two of them host: the third asks the master it heard of."""
    net = Net(3)
    group = GroupId(1)
    for node in (ONE, TWO):
        net[node].replica.members = (ONE, TWO)
    third = net[THREE].engine
    net[THREE].replica.members = (ONE, TWO)
    third.remove_group(group)
    net.advance(5_000)
    master = next(node for node in (ONE, TWO) if net[node].acting())
    refused: list[Outcome] = []
    third.submit(group, command("a"), refused.append)
    assert refused == [NotDone(FailureReason.NOT_MASTER, None)]
    assert (third.epoch(group), third.members(group)) == (-1, ())
    words = list(claims_for(THREE, net[master].multi.replicas, net[master].engine.now()))
    assert list(claims_for(ONE, net[master].multi.replicas, net[master].engine.now())) == []
    third.on_masters(master, words)
    assert net[THREE].hooks.acting_changed
    assert third.master(group) == master
    assert third.epoch(group) == net[master].engine.epoch(group) > 0
    third.submit(group, command("b"), refused.append)
    assert refused[1:] == [NotDone(FailureReason.NOT_MASTER, master)]
    outcomes: list[Outcome] = []
    third.submit(group, command("c"), outcomes.append, anywhere=True)
    net.settle()
    assert [type(one) for one in outcomes] == [Done]
    assert net[master].ledger.texts() == ["c"]
