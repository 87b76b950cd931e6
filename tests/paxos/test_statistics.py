"""What a replica reports about itself and the other members (paxos/statistics.py)."""

from tests.paxos.core import member


def test_a_master_is_not_behind_itself() -> None:
    one = member()
    one.lead()
    told = one.replica.statistics(one.now)
    assert set(told.peers_applied) == set(one.replica.others(one.replica.members))
