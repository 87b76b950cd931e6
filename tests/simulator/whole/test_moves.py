"""Clients of whole nodes that act on no hint, while masters move: they are told of no error."""

from collections import Counter

import pytest

from broker.proposals.successor import Successor
from paxos.ids import MS
from simulator.whole.hunts.hunting import small
from simulator.whole.options import Fault
from simulator.whole.swarm import run_world
from wire.error_codes import ErrorCode

MOVED = "said: steal finished"


def errors_of(seed: int) -> tuple[Counter[str], int]:
    """What producers and a consumer like kafkajs's were refused with, and how many moves there
    were."""
    verdict = run_world(
        small(
            seed,
            faults=frozenset({Fault.PLACES}),
            fault_gap_ns=300 * MS,
            families=("kafkajs", "kafkajs idempotent", "kafkajs acks=0", "librdkafka 2.0"),
            readers=("kafkajs", "librdkafka 2.0"),
            lease_ms=2_000,
            producers=0,
            pipeliners=0,
            consumers=0,
            operators=0,
            writers=0,
            liars=0,
        )
    )
    assert not verdict.failure, f"{verdict.failure}\n{verdict.report}"
    told = Counter(
        {
            name: count
            for name, count in verdict.statistics.items()
            if name.partition(": ")[2] in ErrorCode.__members__
        }
    )
    return told, verdict.statistics[MOVED]


@pytest.mark.parametrize("seed", [2, 3])
def test_who_acts_on_no_hint_notices_no_move(seed: int) -> None:
    """Producers with and without sequences or answers, and consumers, whoever the master is by
    then."""
    told, moves = errors_of(seed)
    assert not told
    assert moves >= 5


def test_without_a_former_master_that_stands_in_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Successor, "moved_ns", lambda _self, _now: 0)
    told, _ = errors_of(2)
    assert told["consumers: NOT_LEADER_OR_FOLLOWER"]
