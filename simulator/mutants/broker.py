"""Planted bugs in what broker and coordinator derive from the log (simulator.mutants.catalogue)."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from balancer.registry.catalogue import Catalogue
from broker.groups.consumer_groups import ConsumerGroups
from broker.handlers.records import fetch, producer_ids
from broker.handlers.records.produce import Produce
from broker.producers.unknown_producers import UnknownProducers
from broker.reads.reader import Reader
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from broker.state_machine.producer_state import Producers
from broker.state_machine.writer_state import Writers
from coordinator.coordinator import Coordinator
from coordinator.live import offsets
from coordinator.live.assigning import Assigning
from coordinator.live.group import LiveGroup
from coordinator.live.membership import Membership
from coordinator.live.rebalance import Rebalance
from coordinator.live.tenure import Tenure
from coordinator.live.wait_records import WaitRecords
from coordinator.replicated import store
from coordinator.replicated.store import GroupStore
from coordinator.timers import Running, Timers
from coordinator.topics import Topics
from paxos.changes import handover
from simulator.environment.options import Workload
from simulator.mutants.planting import Mutant, mutant
from simulator.node.broker_node import BrokerNode
from wire.records import times as record_times

BROKER_TESTS: Final = "tests/broker"
TIME_TESTS: Final = "tests/broker/handlers/test_list_offsets.py"
PRODUCER_TESTS: Final = "tests/broker/state_machine/test_producers.py"
PRODUCER_ID_TESTS: Final = "tests/broker/handlers/test_producer_ids.py"
WRITER_TESTS: Final = "tests/broker/state_machine/test_writers.py"
COORDINATOR_TESTS: Final = "tests/coordinator"
OWNERSHIP_TESTS: Final = "tests/coordinator/test_ownership.py"
NO_SHARED_GROUPS: Final = "no world has groups with broker-side assignment"


_mutant = partial(mutant, workload=Workload.BROKER)
_writers = partial(_mutant, "write tokens", settings=("writers=2",), tests=WRITER_TESTS)
_waits = partial(_mutant, "ADR 34", tests="tests/coordinator/test_waits.py")
_MEMBERS = ("writers=0", "operators=0", "consumers=5")
STALLS: Final = (*_MEMBERS, "faults=", "steal_gap_ns=60000000000", "stall_every_ns=900000000")
"""Worlds in which the coordinator freezes again and again."""
MOVES: Final = (*_MEMBERS, "faults=", "steal_gap_ns=400000000")
"""Worlds in which masters move several times a session."""

PRODUCERS: Final[Mapping[str, Mutant]] = {
    "duplicate-appended": _mutant(
        "R16",
        "a producer's duplicate is appended again",
        (Producers.judge, "return Verdict(ErrorCode.NONE, base_offset)", "return None"),
        tests=PRODUCER_TESTS,
    ),
    "gap-appended": _mutant(
        "R16",
        "a producer's batch is appended although one is missing before it",
        (Producers.judge, "first == (producer.last + 1) % SEQUENCES", "first > producer.last"),
        tests=PRODUCER_TESTS,
    ),
    "unknown-begins-anywhere": _mutant(
        "R16",
        "a producer's second batch is appended although the first was refused",
        (Producers.judge, "first >= IN_FLIGHT_RECORDS_MAX", "True"),
        tests=PRODUCER_TESTS,
    ),
    "old-epoch-appended": _mutant(
        "KIP-360",
        "a producer's batch of an earlier epoch is appended",
        (Producers.judge, "return _FENCED", "return None"),
        tests=PRODUCER_TESTS,
    ),
    "named-id-is-believed": _mutant(
        "KIP-98",
        "InitProducerId gives anybody the next epoch of any id that the request names",
        (
            producer_ids.handle,
            "    broker.producer_ids.take(guarded(broker, request, partial(_on_id, request)))",
            "    if message.producer_id != NONE:\n"
            "        epoch = message.producer_epoch + 1\n"
            "        _answer(request, ErrorCode.NONE, message.producer_id, epoch)\n"
            "        return\n"
            "    broker.producer_ids.take(guarded(broker, request, partial(_on_id, request)))",
        ),
        tests=PRODUCER_ID_TESTS,
    ),
    "producers-forgotten-at-restart": _mutant(
        "R16",
        "a restarted node has forgotten the batches of idempotent producers",
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
        "the answer to a duplicate has the partition's end as its offset",
        (
            PartitionState.append,
            "Append(verdict.error, verdict.base_offset, None",
            "Append(verdict.error, self.next_offset - 1, None",
        ),
        tests=BROKER_TESTS,
    ),
}

WRITERS: Final[Mapping[str, Mutant]] = {
    "complete-micro-batch-appended": _writers(
        "a complete micro-batch that is run again is appended again",
        (
            Writers.judge,
            "known is None or batch >",
            "known is None or not known[0].more or batch >",
        ),
    ),
    "earlier-micro-batch-appended": _writers(
        "a micro-batch from before the last one is appended again",
        (Writers.judge, "batch > known.position.batch", "batch != known.position.batch"),
    ),
    "incomplete-micro-batch-there": _writers(
        "the rest of an incomplete micro-batch is reported as present",
        (Writers.judge, "if batch < last_batch", "if batch < last_batch or chunk > last_chunk"),
    ),
    "complete-micro-batch-goes-on": _writers(
        "a chunk is appended to a micro-batch that was complete",
        (Writers.judge, "more and ", ""),
        why_not="every run of a job in these worlds has the same chunks",
    ),
    "chunk-appended-again": _writers(
        "a chunk of an incomplete micro-batch is appended again",
        (
            Writers.judge,
            "Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, bases[-1 - back])",
            "None",
        ),
    ),
    "chunk-overtakes": _writers(
        "a chunk is appended although one is missing before it",
        (Writers.judge, "chunk == last_chunk + 1", "True"),
    ),
    "micro-batch-begins-anywhere": _writers(
        "a micro-batch begins with any chunk",
        (Writers.judge, "None if chunk == 0 else _OUT_OF_ORDER", "None"),
    ),
    "chunk-shown-elsewhere": _writers(
        "a writer is shown a different chunk from the one it asks about",
        (Writers.judge, "bases[-1 - back]", "bases[0]"),
    ),
    "wrong-writer-forgotten": _mutant(
        "write tokens",
        "above the limit, the writer that has just written is forgotten",
        (Writers.appended, "next(iter(self._by_id))", "producer_id"),
        tests=WRITER_TESTS,
        why_not="no world has that many writers",
    ),
}

DATA: Final[Mapping[str, Mutant]] = {
    "tail-with-a-hole": _mutant(
        "fetch",
        "the tail in memory stays when the batches after it are not kept",
        (GroupMachine._apply_records, "self._tail.drop(uid)", "pass"),
        tests=BROKER_TESTS,
    ),
    "fetch-checked-before": _mutant(
        "R14",
        "a fetch checks the lease before it reads, not afterwards",
        (fetch._Fetch._still_leads, "broker.groups.acting(group)", "True"),
        tests=BROKER_TESTS,
    ),
    "late-read-of-another-place": _mutant(
        "ADR 47",
        "a read in the background is used for another place of the log",
        (
            Reader._from_log,
            "self._given.get((_LOG, start))",
            "next((one for key, one in self._given.items() if key[0] == _LOG), None)",
        ),
        tests="tests/broker/reads/test_late_reads.py",
    ),
    "time-of-the-batch": _mutant(
        "ADR 35",
        "the offset for a time is the first one of its batch",
        (record_times.first_reaching, "record[1] >= timestamp_ms and", ""),
        tests=TIME_TESTS,
    ),
    "fetch-while-behind": _mutant(
        "R14",
        "a new master serves fetches before it has applied earlier entries",
        (fetch._Fetch._still_leads, "and broker.groups.caught_up(group)", ""),
        tests=BROKER_TESTS,
    ),
    "unknown-is-acknowledged": _mutant(
        "R14",
        "a batch with an unknown outcome is acknowledged",
        (
            Produce._not_done,
            "self.refuse_for_now(topic, answer, _ERROR_OF[outcome.why])",
            "answer.error_code, answer.base_offset = 0, 0",
        ),
        tests=BROKER_TESTS,
    ),
    "unknown-is-refused": _mutant(
        "R14",
        "a batch with an unknown outcome is refused permanently",
        (
            Produce._not_done,
            "_ERROR_OF[outcome.why]",
            "ErrorCode.NOT_LEADER_OR_FOLLOWER",
        ),
        tests=BROKER_TESTS,
    ),
    "steal-for-the-unheard": _mutant(
        "aim",
        "a master hands over to a node that it has not heard",
        (
            handover.away_refusal,
            "target not in replica.incarnations or not replica.is_heard(target, now)",
            "target not in replica.incarnations",
        ),
        tests="tests/paxos",
    ),
    "steal-for-the-late": _mutant(
        "aim",
        "a master hands over to a node that is behind",
        (
            handover._target_refusal,
            "replica.learner.applied - applied > STEAL_LAG_SLOTS_MAX",
            "False",
        ),
        tests="tests/paxos",
    ),
}

GROUPS: Final[Mapping[str, Mutant]] = {
    "commit-of-an-old-generation": _mutant(
        "fenced",
        "a commit of an earlier generation is accepted if its member is still in the group",
        (store._fence, "command.generation != group.generation", "False"),
        (offsets._fence, "request.generation != group.generation", "False"),
        tests=COORDINATOR_TESTS,
    ),
    "commit-fenced-at-the-door-only": _mutant(
        "fenced",
        "a commit that was under way when the members changed is accepted",
        (store._fence, "command.generation != group.generation", "False"),
        (store._fence, "if member is None:\n        return ErrorCode.UNKNOWN_MEMBER_ID", "pass"),
        tests=COORDINATOR_TESTS,
    ),
    "generation-used-twice": _mutant(
        "generation",
        "a rebalance does not increase the generation",
        (Rebalance._complete, "group.generation += 1", "group.generation |= 1"),
        tests=COORDINATOR_TESTS,
    ),
    "snapshot-of-an-old-revision": _mutant(
        "generation",
        "a command of an earlier coordinator replaces what its successor wrote",
        (GroupStore._write_group, "command.prev_revision != revision", "False"),
        tests=COORDINATOR_TESTS,
    ),
    "session-begun-anew-by-a-stall": _waits(
        "a coordinator that was paused restarts the sessions of all members",
        (
            Timers.grant,
            "running.deadline_ms += away_ms",
            "running.deadline_ms = now_ms + running.whole_ms",
        ),
        settings=STALLS,
    ),
    "graced-again-and-again": _waits(
        "each stall gives members another grace",
        (Running.top_up, "not self.graced and", ""),
        settings=STALLS,
    ),
    "session-begun-anew-by-a-move": _waits(
        "a new coordinator restarts all sessions",
        (Timers.resume, "known is None", "True"),
        settings=MOVES,
    ),
    "doubt-begins-sessions-anew": _waits(
        "a node that is the same master again has forgotten what it had not recorded",
        (Coordinator.elected, "left_as == term", "False"),
        settings=("faults=CUT_MASTER", "fault_gap_ns=2000000000", "steal_gap_ns=9000000000"),
    ),
    "nothing-written-before-a-move": _waits(
        "a master does not record the waiting times before a steal",
        (WaitRecords.hand_over, "_differ(waits, self._known(), 0)", "False"),
        (WaitRecords.look, "_differ(unusual, self._known(), every_ms)", "False"),
        settings=MOVES,
    ),
    "commit-of-what-came-later": _mutant(
        "KIP-1251",
        "a commit under an older epoch covers partitions assigned in the epoch after it",
        (store._stale, "since > command.generation", "since > command.generation + 1"),
        tests="tests/coordinator/test_assigned_commits.py",
        why_not="no world has members of that kind",
        settings=MOVES,
    ),
    "joined-before-durable": _mutant(
        "durable before visible",
        "members hear of a generation before the log has it",
        (Rebalance.settle, "and group.durable >= group.join_version", ""),
        tests=COORDINATOR_TESTS,
    ),
    "assigned-before-durable": _mutant(
        "durable before visible",
        "members hear of their partitions before the log has them",
        (
            Rebalance.settle,
            "group.state == GroupState.STABLE and group.durable >= group.sync_version",
            "group.state == GroupState.STABLE",
        ),
        (Rebalance.sync_response, "assert group.durable >= group.sync_version", "pass"),
        tests=COORDINATOR_TESTS,
    ),
    "answered-after-the-office-ended": _mutant(
        "R14",
        "a coordinator answers although another one may have taken its place",
        (ConsumerGroups._answer, "same and not self._groups.acting(tenure.group)", "False"),
        tests="tests/broker/groups/test_coordinator_moves.py",
    ),
    "let-in-at-once": _mutant(
        "R16",
        "a new master accepts an unknown producer whose first batch is still on its way",
        (
            UnknownProducers.may_begin,
            "heard_epoch != epoch or now_ns - since < PATIENCE_NS",
            "False",
        ),
        settings=("reborn=1",),
        tests="tests/broker/producers/test_admissions.py",
    ),
    "epochs-fall": _mutant(
        "reborn-epoch",
        "a recreated topic starts with the leader epochs of its groups",
        (Catalogue._epoch_bases, "self.epoch_floor - self.epochs.get(group, 0)", "0"),
        settings=("reborn=1",),
        tests="tests/balancer/test_registry.py",
    ),
    "nobody-is-let-in": _mutant(
        "reborn-refused",
        "a producer that continues in a recreated topic is refused for ever",
        (UnknownProducers.may_begin, "self._under_way.add(key)", "return False"),
        settings=("reborn=1",),
        tests="tests/broker/producers/test_admissions.py",
    ),
    "offsets-come-back": _mutant(
        "reborn-offset",
        "offsets committed for a topic are reported for the next one of its name",
        (Topics.is_of, "uid == self.uid(topic, partition) or uid >= self.next_uid", "True"),
        settings=("reborn=1",),
        tests=COORDINATOR_TESTS,
    ),
    "offset-forgotten": _mutant(
        "lost-commit",
        "a commit is answered but not written",
        (GroupStore._commit, "stored[partition] = StoredOffset(", "_ = StoredOffset("),
        tests=COORDINATOR_TESTS,
    ),
}

CLAIMS: Final[Mapping[str, Mutant]] = {
    "instance-is-anybodys": _mutant(
        "ownership",
        "the instance id that a classic member names is not checked",
        (LiveGroup.fence, "if instance_id is not None:", "if False:"),
        (store._fence, "command.instance_id is not None and (", "False and ("),
        tests=OWNERSHIP_TESTS,
    ),
    "heartbeat-in-any-generation": _mutant(
        "ownership",
        "a heartbeat counts for its member in any generation",
        (Membership.heartbeat, "and request.generation != group.generation", "and False"),
        tests=OWNERSHIP_TESTS,
    ),
    "instances-exchanged": _mutant(
        "ownership",
        "a member joins again as another instance, and is in two places",
        (
            Assigning._joining,
            "known is not None and request.instance_id not in (None, known.instance_id)",
            "False",
        ),
        why_not=NO_SHARED_GROUPS,
        tests=OWNERSHIP_TESTS,
    ),
    "replaced-and-unknown": _mutant(
        "ownership",
        "a member replaced under its instance id gets 'unknown member', and joins again",
        (Assigning._named, "instance is not None and group.static", "False and group.static"),
        why_not=NO_SHARED_GROUPS,
        tests=OWNERSHIP_TESTS,
    ),
    "offsets-for-anybody": _mutant(
        "ownership",
        "a removed member can still read committed offsets",
        (offsets._fence_fetch, "or nobody", "or True"),
        why_not=NO_SHARED_GROUPS,
        tests=OWNERSHIP_TESTS,
    ),
    "member-ids-in-order": _mutant(
        "ownership",
        "member ids are predictable, and repeat in a recreated cluster",
        (Tenure.new_member_id, "key=self._secret, ", ""),
        why_not="no client guesses, and a world has one cluster",
        tests=OWNERSHIP_TESTS,
    ),
    "session-of-nobody": _mutant(
        "KIP-227",
        "a fetch in a session that does not exist gets an empty answer",
        (fetch._refusal, "message.session_epoch not in (SESSION_BEGINS, SESSION_ENDS)", "False"),
        why_not="all readers send complete requests",
        tests="tests/broker/handlers/test_fetch.py",
    ),
}
"""Fields that name an owner (docs/ownership.md)."""
