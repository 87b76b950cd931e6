"""Planted bugs in what the broker and the coordinator make of the log; see `simulator.mutants`."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.handlers.produce import _Produce
from broker.machine import GroupMachine
from broker.partition import PartitionState
from broker.producers import Producers
from paxos import handover
from simulator.brokers import BrokerNode
from simulator.options import Workload
from simulator.planting import Mutant, mutant

BROKER_TESTS: Final = "tests/broker"
PRODUCER_TESTS: Final = "tests/broker/test_producers.py"
COORDINATOR_TESTS: Final = "tests/coordinator"


_mutant = partial(mutant, workload=Workload.BROKER)

PRODUCERS: Final[Mapping[str, Mutant]] = {
    "duplicate-appended": _mutant(
        "R16",
        "a producer's duplicate is appended again",
        (Producers.judge, "return Verdict(ErrorCode.NONE, base_offset)", "return None"),
        tests=PRODUCER_TESTS,
    ),
    "gap-appended": _mutant(
        "R16",
        "a producer's batch is appended though one is missing before it",
        (Producers.judge, "first == (producer.last + 1) % SEQUENCES", "first > producer.last"),
        tests=PRODUCER_TESTS,
    ),
    "producers-forgotten-at-restart": _mutant(
        "R16",
        "a restarted node has forgotten what idempotent producers sent",
        (
            BrokerNode.apply,
            "machine.take_grown()",
            "machine.take_grown()\n"
            "        for state in machine.partitions.values():\n"
            "            state.producers._by_id.clear()",
        ),
        tests=BROKER_TESTS,
    ),
    "duplicate-told-another-offset": _mutant(
        "R16",
        "a duplicate is answered with the end of the partition",
        (
            PartitionState.append,
            "Append(verdict.error, verdict.base_offset, None",
            "Append(verdict.error, self.next_offset - 1, None",
        ),
        tests=BROKER_TESTS,
    ),
}

DATA: Final[Mapping[str, Mutant]] = {
    "tail-with-a-hole": _mutant(
        "fetch",
        "what was kept in memory stays when what follows is not kept",
        (GroupMachine._apply_records, "self._tail.drop(uid)", "pass"),
        tests=BROKER_TESTS,
    ),
    "unknown-is-acknowledged": _mutant(
        "R14",
        "a batch of unknown fate is acknowledged",
        (
            _Produce._elsewhere,
            "answer.error_code = _ERROR_OF[outcome.why]",
            "answer.error_code, answer.base_offset = 0, 0",
        ),
        tests=BROKER_TESTS,
    ),
    "steal-for-the-unheard": _mutant(
        "aim",
        "a master hands over to a node it has not heard",
        (
            handover.away_refusal,
            "target not in replica.incarnations or not replica.is_heard(target, now)",
            "target not in replica.incarnations",
        ),
        tests="tests/paxos",
    ),
}
