"""Planted bugs in checkpoints, state transfers and membership changes (mutants/catalogue.py)."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.disk_watch import DiskWatch
from broker.state_machine.machine import GroupMachine
from broker.state_machine.writer_state import Writers
from paxos.changes import doubt, membership, rejoin, snapshot, testimony
from paxos.changes.rewriting import write_again
from paxos.lease import Lease
from paxos.liveness import mastership
from paxos.liveness.standstill import Standstill
from paxos.replica import Replica
from paxos.state.core import Core
from paxos.state.rejoin import Rejoin
from simulator.environment.options import Workload
from simulator.mutants import planting
from simulator.mutants.planting import Mutant
from simulator.node.checkpointing import Checkpoints
from simulator.node.disk import RecordDisk
from simulator.node.node import SimNode
from storage.log.index import GroupState
from storage.log.log_state import LogState

SCENARIOS: Final = "tests/paxos/scenarios"

mutant = partial(planting.mutant, tests="tests/paxos/changes/test_base.py")
_BELOW_A_NODE: Final = "tests/runtime/test_damage_worlds damages the log of a running node"

DISKS: Final[Mapping[str, Mutant]] = {
    "hung-master-stays": mutant(
        "disks",
        "a node stays master while its disk hangs",
        (
            DiskWatch.look,
            "replica.election.abstaining = health.hung or self.leaving",
            "pass",
        ),
        settings=("faults=SLOW_DISK", "steal_gap_ns=60000000000"),
        tests="tests/runtime/disk/test_ailing_disk.py",
    ),
    "abstains-for-ever": mutant(
        "disks",
        "a node that abstained because of its disk does so for ever",
        (DiskWatch.look, "health.hung or self.leaving", "True"),
        tests="tests/runtime/disk/test_ailing_disk.py",
    ),
}

STATES: Final[Mapping[str, Mutant]] = {
    "install-takes-over": mutant(
        "R5, R6",
        "a node that a peer's state names as master leads under the last ballot it promised",
        (
            Replica.install,
            "self.trimmed_boot_ns = None",
            "if self.lease.held_by(self.me, self.incarnation):\n"
            "        self.proposer.take_over(\n"
            "            base.slot, self.acceptor.promised, base.members, now.boot_ns)",
        ),
        why_not="a master's log must be retired within its lease while it hears nothing: "
        "scenario 28 does it",
        tests=f"{SCENARIOS}/recovery/test_s28_trimmed_log.py",
    ),
    "install-acts": mutant(
        "R11",
        "a node that a peer's state names as master acts at once",
        (
            snapshot.install,
            "lease.lapse(now)",
            "lease.start_deadline(now, replica.timing.lease_ns)",
        ),
        why_not="nobody else can be master then: the rule is a safety margin",
    ),
    "install-keeps-votes": mutant(
        "ADR 3",
        "votes of slots that a base covers are kept",
        (snapshot.install, "replica.acceptor.forget(slot)", "pass"),
    ),
    "base-without-members": mutant(
        "R10",
        "a node that continues from a base keeps the members that it knew before",
        (
            snapshot._cover,
            "replica.become_members(base.members, base.configured)",
            "pass",
        ),
    ),
    "base-without-lease": mutant(
        "R8",
        "a node that continues from a base keeps the lease that it knew before",
        (Lease.restore, "self.holder, self.incarnation = base.holder, base.incarnation", "return"),
    ),
    "doubt-ignored": mutant(
        "ADR 39",
        "a member whose log differs from another's continues to act and vote",
        (
            doubt.look_again,
            "replica.doubt = bool(wrong) and not rejoin.agrees(replica, since)",
            "pass",
        ),
        why_not="no world has two logs",
        tests="tests/paxos/changes/test_doubt.py",
    ),
    "doubt-lifted-by-the-past": mutant(
        "ADR 39",
        "agreement with a log from before it differed counts",
        (rejoin.agrees, "agreed >= since", "agreed >= 0"),
        why_not="no world has two logs",
        tests="tests/paxos/changes/test_doubt.py",
    ),
    "hopeless-and-taught": mutant(
        "ADR 39",
        "a member whose log is wrong continues to apply what others send",
        (Replica.learn, "if self.hopeless:", "if False:"),
        why_not="no world has two logs",
        tests="tests/paxos/changes/test_doubt.py",
    ),
    "pair-ballots-again": mutant(
        "R1",
        "one of two members that has forgotten its ballots uses them again",
        (rejoin._vote_again, "if jump:", "if False:"),
        why_not="a late frame of the earlier life must have a ballot that was used again",
        tests=f"{SCENARIOS}/members/test_s31_two_members.py",
        settings=("members=2",),
    ),
    "pair-votes-unread": mutant(
        "R10",
        "one of two members votes again before it knows all that the other does",
        (Rejoin.may_vote, "applied >= told[0] >= configured", "True"),
        why_not="a third member must join or leave just while one of two forgets",
        tests="tests/paxos/changes/test_rejoin.py",
        settings=("members=2",),
    ),
    "pair-answers-with-a-config": mutant(
        "R10",
        "one of two members answers although there may be a third that it does not know",
        (
            rejoin.answer,
            "if is_pair(replica.me, replica.members) and acceptor.voted_config():",
            "if False:",
        ),
        why_not="a third member must join or leave just while one of two forgets",
        tests="tests/paxos/changes/test_rejoin.py",
        settings=("members=2",),
    ),
    "chain-begins-anew": mutant(
        "I3",
        "the hash chain restarts at a base",
        (
            snapshot._cover,
            "begin_after(base.slot, base.chain)",
            "begin_after(base.slot, 0)",
        ),
    ),
    "trimmed-slots-served": mutant(
        "I3",
        "a node asked for slots that its log no longer has sends other slots",
        (SimNode._answer_learn, "serve.start < group.log_start", "False"),
    ),
    "trimmed-ignored": mutant(
        "liveness",
        "a node that hears that the log is gone keeps asking",
        (Replica._on_trimmed, "step.fetch.append(FetchState(self.group, sender))", "pass"),
    ),
    "elections-while-behind": mutant(
        "liveness",
        "a node that waits for a state starts elections",
        (mastership.is_fetching, "since is not None and", "False and"),
        why_not="each of its ballots costs the others one election, and worlds end without faults",
    ),
    "elections-without-end": mutant(
        "liveness",
        "a node that has long been behind starts elections although its group works without it",
        (Standstill.is_dead, "now_ns - self.group_since > patience_ns", "True"),
        why_not="each of its ballots costs the others one election, and worlds end without faults",
        tests=f"{SCENARIOS}/members/test_s32_behind_for_long.py",
    ),
    "retired-behind-the-newest": mutant(
        "checkpoints",
        "the log is retired up to the newest checkpoint, which may be damaged",
        (
            RecordDisk.retire,
            "kept[0].slot if len(kept) > 1 else SLOT_ZERO",
            "kept[-1].slot if kept else SLOT_ZERO",
        ),
        why_not="the node notices, and gets its state from a peer: it is slower, not wrong",
        tests=f"{SCENARIOS}/recovery/test_s29_crashes_around_checkpoints.py",
    ),
    "used-before-durable": mutant(
        "checkpoints",
        "a peer's state is used without being written to disk",
        (Checkpoints._keep, "self.is_saved(what.group, saved)", "True"),
        why_not="the log tells at the next start that something is missing",
        tests=f"{SCENARIOS}/recovery/test_s29_crashes_around_checkpoints.py",
    ),
    "floors-ignored": mutant(
        "checkpoints",
        "a restart applies again what a part of the checkpoint already contains",
        (GroupMachine.apply, "slot <= self._floor_max", "False"),
        workload=Workload.BROKER,
        tests="tests/broker",
    ),
    "writers-forgotten": mutant(
        "write tokens",
        "a node that continues from a checkpoint, its own or a peer's, knows no writers",
        (Writers.load, "dict(images)", "{}"),
        workload=Workload.BROKER,
        settings=("writers=2", "checkpoint_slots=20", "judged=0"),
        tests="tests/broker/state_machine/test_image.py",
    ),
}

MEMBERS: Final[Mapping[str, Mutant]] = {
    "vote-after-leaving": mutant(
        "ADR 22",
        "a node that left a group and dropped its data votes as if it had never been in it",
        (
            RecordDisk.forget,
            "VotingRecord(group, False, floor)",
            "VotingRecord(group, True, floor)",
        ),
        (RecordDisk.forget, "voting=False, floor=floor", "voting=True"),
        why_not="it takes a member so far behind that it still counts on the one that left",
        tests=f"{SCENARIOS}/members/test_s30_left_and_back.py",
    ),
    "bar-of-older-members": mutant(
        "ADR 22",
        "a membership change does not raise the bar of nodes that may not vote",
        (Rejoin.may_vote, "max(self.bar_of(members), configured)", "self.bar_of(members)"),
        why_not="it takes members none of whom was one when the bar was set",
    ),
    "anybody-added": mutant(
        "ADR 22",
        "a node becomes a member although it is behind, silent, or does not vote",
        (membership._refusal, "differing.isdisjoint(able)", "False"),
        why_not="the others go on without it: it costs a spare, and shows when one more fails",
        tests="tests/paxos/changes/test_membership.py",
    ),
    "change-among-others": mutant(
        "R10",
        "a membership change is proposed while other slots are under way",
        (
            membership.try_to_place,
            "not proposer.in_flight and replica.learner.applied == proposer.next - 1",
            "True",
        ),
        why_not="it takes two changes, at ballots that do not see each other, in a group of four",
        tests="tests/paxos/changes/test_membership.py",
    ),
    "change-during-a-handover": mutant(
        "scenario 23",
        "the members change while the group is being handed over",
        (membership._refusal, "replica.handover is not None", "False"),
        why_not="a master that hands over takes commands only under an older strategy",
        tests="tests/paxos/changes/test_membership.py",
    ),
    "votes-with-a-gap": mutant(
        "ADR 46",
        "a node that lost votes for chosen slots promises before it has learned them again",
        (Core.has_gap, "self.learner.applied < self.proven", "False"),
        settings=("faults=DAMAGE,CRASH,RIVAL", "disk=wal"),
        tests="tests/paxos/changes/test_gap.py",
    ),
    "unprovable-damage-is-harmless": mutant(
        "ADR 46",
        "a damaged vote has no effect, whether or not its slot is known to be chosen",
        (LogState.costs_vote, "hole.slot <= group.proven", "True"),
        settings=("faults=DAMAGE,CRASH,RIVAL", "disk=wal"),
        tests="tests/storage/log/test_recovery.py",
    ),
    "later-heads-prove-too-much": mutant(
        "ADR 46",
        "the head of a later segment proves that no vote was lost, whatever was open then",
        (LogState.costs_vote, "a_head or highest <= group.proven", "True"),
        settings=("faults=DAMAGE,CRASH,RIVAL", "disk=wal"),
        tests="tests/storage/log/test_recovery.py",
    ),
    "lost-ballot-untold": mutant(
        "ADR 46",
        "a node that lost an entry that it alone has applied does not report its ballot",
        (testimony.tell, "not replica.lost or replica.doubt", "True"),
        why_not=_BELOW_A_NODE,
        tests="tests/runtime/disk/test_lost_alone.py",
    ),
    "lost-ballot-of-any-record": mutant(
        "ADR 46",
        "... or reports it although a later record of the slot may be lost, too",
        (
            GroupState.lose_open,
            "{slot: one for slot, one in self.damaged.items() if slot <= self.applied}",
            "self.damaged",
        ),
        (GroupState.lose, "self.damaged.pop(slot, None)", "pass"),
        why_not=_BELOW_A_NODE,
        tests="tests/storage/log/test_lost_votes.py",
    ),
    "behind-stops-everybody": mutant(
        "ADR 46",
        "a member that is ahead but cannot teach its entries blocks the others' phase 1",
        (
            Replica._on_behind,
            "not self.standstill.is_dead(now.boot_ns, self.timing)",
            "True",
        ),
        why_not=_BELOW_A_NODE,
        tests="tests/paxos/liveness/test_standstill.py",
    ),
    "applied-votes-not-written-again": mutant(
        "ADR 46",
        "after a restart, a damaged vote for an applied slot counts as one never cast",
        (write_again, "acceptor.promised, applied))", "acceptor.promised))"),
        why_not=_BELOW_A_NODE,
        tests="tests/runtime/disk/test_repair.py",
    ),
    "left-before-a-majority-knows": mutant(
        "ADR 22",
        "a node may forget its votes in a group once the master knows that it has left",
        (membership.is_settled, "is_quorum(known, replica.members)", "True"),
        why_not="it takes four members, two of which have heard, and one of these fails: seed 128",
        tests="tests/paxos/changes/test_membership.py",
    ),
}
