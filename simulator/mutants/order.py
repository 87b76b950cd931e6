"""Planted bugs in the order of a connection's requests (F4); see `simulator.mutants.catalogue`."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.handlers.records.produce import Produce
from broker.ordering_barriers import OrderingBarriers
from broker.ports import Connection
from broker.proposals.intake import Intake
from simulator.environment.options import Workload
from simulator.mutants.planting import Mutant, mutant

INTAKE_TESTS: Final = "tests/paxos/test_intake_order.py"

_mutant = partial(
    mutant,
    "F4",
    workload=Workload.BROKER,
    settings=("pipeliners=2", "operators=0"),
    tests=INTAKE_TESTS,
)

ORDER: Final[Mapping[str, Mutant]] = {
    "lane-forgets-a-refusal": _mutant(
        "requests behind a refused batch are let through",
        (
            OrderingBarriers.is_blocked,
            "self._all is not None or (topic, index) in self._shut",
            "False",
        ),
        tests="tests/broker/requests/test_ordering_barriers.py",
    ),
    "lane-opens-at-once": _mutant(
        "a lane opens once its first refusal is known, whatever was refused since",
        (OrderingBarriers.seen, "_opens(shut, number, boot_ns)", "shut.first <= number"),
        tests="tests/broker/requests/test_ordering_barriers.py",
    ),
    "open-lane-forgets": _mutant(
        "a forwarded request from before a refusal is let through when the lane is open",
        (
            Connection.would_overtake,
            "return last > refusals",
            "return self.barriers and last > refusals",
        ),
        tests="tests/broker/requests/test_ordering_barriers.py",
    ),
    "pause-skipped": _mutant(
        "a client that overloads a group is still read, until the group refuses",
        (vars(Intake)["backlogged"].fget, "self.queue_bytes + self.forwarded_bytes > ", "0 > "),
        tests="tests/paxos/test_intake.py",
        why_not="no world sends as much as a group allows to wait",
    ),
    "goes-round-the-forward": _mutant(
        "a master that keeps the group does not wait for what it has forwarded",
        (Intake.flush, "if self.forwarded or not self.queue:", "if not self.queue:"),
    ),
    "forwards-before-the-queue": _mutant(
        "commands that arrive as a handover begins are forwarded before queued ones",
        (
            Intake.submit,
            "route.to in (replica.me, NOBODY) or self.queue or not",
            "route.to in (replica.me, NOBODY) or not",
        ),
    ),
    "guest-sent-on": _mutant(
        "another node's command is forwarded again when the group moves",
        (Intake._route, "if pending.forwarded_in and (", "if False and ("),
    ),
    "refuses-one-of-a-row": _mutant(
        "a node refuses a forwarded command and takes the one behind it",
        (Intake.submit_forwarded, "late or pending.overtakes() or", "late or"),
    ),
    "adopted-let-go-one-by-one": _mutant(
        "when commands that wait for a group time out, only the first is returned",
        (
            Intake.tick,
            "self._return_adopted(now)",
            "self._return_to_senders([self.adopted.popleft()], FailureReason.NOT_MASTER, now); "
            "self.suspect = False",
        ),
    ),
    "waits-behind-the-unknown": _mutant(
        "commands behind one with an unknown outcome are carried out nevertheless",
        (Intake._drop_overtakers, "if one.overtakes()", "if False"),
    ),
    "told-behind-the-unknown": _mutant(
        "commands proposed behind one with an unknown outcome are reported as done",
        (Intake._doubt_proposed, "if pending.overtakes():", "if False:"),
    ),
    "refusal-shuts-nothing": _mutant(
        "a refusal does not shut the lane",
        (Produce.refuse_for_now, "self.request.reply.refused(topic, answer.index)", "pass"),
        tests="tests/broker/requests/test_ordering_barriers.py",
    ),
}
