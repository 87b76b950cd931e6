"""Planted bugs in fences: a decision made before others were answered is carried out after them."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from balancer.registry.fences import Fences
from broker.groups.consumer_groups import ConsumerGroups
from broker.handlers.records import delete_records
from broker.handlers.topics.registry_changes import Change
from broker.state_machine.machine import GroupMachine
from simulator.environment.options import Workload
from simulator.mutants import planting
from simulator.mutants.planting import Mutant

SETTINGS: Final = (
    "operators=6",
    "consumers=2",
    "faults=STALL",
    "fault_gap_ns=2000000000",
    "steal_gap_ns=20000000000",
    "client_think_ns=50000000",
)
"""Masters move when a link stalls, and stay for a while."""

mutant = partial(planting.mutant, "F1", workload=Workload.BROKER, settings=SETTINGS)

FENCES: Final[Mapping[str, Mutant]] = {
    "decision-of-an-earlier-master": mutant(
        "a decision of an earlier mastership is carried out in a later one",
        (GroupMachine._apply, "epoch == self._lease.epoch", "True"),
        tests="tests/broker/state_machine/test_machine.py",
    ),
    "decision-without-a-fence": mutant(
        "a coordinator's decision is forwarded, and carried out whenever it arrives",
        (
            ConsumerGroups._carry_out,
            "fenced(tenure.epoch, opaque(CommandKind.CONSUMER_GROUP, proposal.command))",
            "opaque(CommandKind.CONSUMER_GROUP, proposal.command)",
        ),
        tests="tests/broker/groups/test_coordinator_moves.py",
    ),
    "everything-there-is-then": mutant(
        "all records are deleted that exist when the command enters the log",
        (delete_records._before, "asked != EVERYTHING", "True"),
        tests="tests/broker/handlers/test_logs.py",
    ),
    "change-overtakes": mutant(
        "a registry change is carried out although the same object has changed since",
        (Fences.problem, "last > command.seen", "False"),
        tests="tests/balancer/test_fences.py",
    ),
    "change-without-a-fence": mutant(
        "a registry change does not name the state it was decided on",
        (Change.submit, "Decided(broker.registry.applied, command)", "command"),
        (Change.submit, "decided.seen", "0"),
        tests="tests/broker/handlers/test_alter_configs.py",
    ),
    "deletions-forgotten": mutant(
        "the same order recreates a topic that was deleted meanwhile",
        (Fences.note, "self.decided[_DELETED] = slot", "pass"),
        tests="tests/balancer/test_fences.py",
    ),
    "unknown-called-refused": mutant(
        "a commit with an unknown outcome is reported as not carried out",
        (ConsumerGroups._on_outcome, "ProposalFailure.UNKNOWN", "ProposalFailure.NOT_MASTER"),
        tests="tests/coordinator/test_moves.py",
    ),
    "chosen-called-refused": mutant(
        "a commit that was chosen as its mastership ended is reported as not chosen",
        (
            ConsumerGroups._answer_late,
            "fate_unknown(request)",
            "refusal(request, ErrorCode.NOT_COORDINATOR)",
        ),
        tests="tests/broker/groups/test_coordinator_moves.py",
    ),
}
