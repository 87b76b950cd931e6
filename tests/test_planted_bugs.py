"""Mechanisms that no test covered once: each is broken here, and its test must fail.

`make mutants` plants what simulated worlds can notice (simulator/mutants/catalogue.py). This table
has the rest: each row changes a line of the product in this process and runs one quick test, which
has to fail. So those tests cannot become hollow again. A row whose line no longer exists fails,
too: plant the bug in what has replaced it. (Spark's is in test_triggers.py: it is skipped where
Spark is not installed.)
"""

import contextlib
import io
from typing import Final, NamedTuple

import pytest

from balancer.stealing.steal import Balancing
from broker import topic_configs
from broker.groups.consumer_groups import ConsumerGroups
from broker.groups.forwarded_requests import RequestForwarding
from broker.handlers.cluster import metadata, topic_partitions
from broker.handlers.records import produce_fast_path as produce_usual
from broker.handlers.records import reading_aside, replicas_in_sync
from broker.handlers.records.fetch import _Fetch
from broker.handlers.records.produce import Produce
from broker.handlers.topics import alter_configs, assignments, known_names
from broker.handlers.topics import registry_changes as changes
from broker.handlers.topics.known_names import when_known
from broker.proposals.intake import Intake
from coordinator.live.membership import Membership as Joining
from coordinator.live.wait_records import WaitRecords
from coordinator.replicated.assigned_group import AssignedMember
from evenkeel.consumer.autocommit import AutoCommit
from evenkeel.consumer.consumer import Consumer
from evenkeel.consumer.fetcher import Fetcher
from evenkeel.consumer.membership import Membership
from evenkeel.tasks.ledger import Ledger
from evenkeel.tasks.member import Member
from evenkeel.tasks.slices import Positions, SliceReader, _Reading
from paxos.changes.rewriting import write_again
from paxos.lease import Lease
from paxos.liveness import mastership, progress, timers
from paxos.state.core import Core
from runtime import settings
from runtime.balancing.draining import Draining
from runtime.balancing.handovers import Handovers
from runtime.clients.clients import Client
from runtime.clients.gate import Gate
from runtime.engine import forwarding as forwarded
from runtime.engine.read_index import ReadIndex
from runtime.engine.submission import Submitting
from runtime.membership.admission import Admission
from runtime.membership.local_records import only_promised, untouched_in
from runtime.peers.large_lane import LargeLane
from runtime.peers.peers import Peers
from runtime.shell import Shell
from simulator.mutants.planting import Edit, Mutant, Where, plant
from storage import identity
from storage.log.header_repair import repaired_header
from storage.log.log_state import LogState
from storage.log.log_writes import LogWrites
from storage.log.recovery import Recovery
from storage.log.synced_mark import SyncedMark
from storage.log.walk import _whose
from tests.planted_in_groups import CONSUMERS_AND_REPLICAS
from tests.planted_in_http import HTTP
from tests.planted_in_security import ACCESS
from wire.records import lz4_frame
from wire.records import validation as record_check

QUICKLY: Final = (
    *("-q", "-x", "-p", "no:cacheprovider"),
    *("-p", "no:unraisableexception", "-p", "no:threadexception"),  # each collects all garbage
)
TASKS: Final = "tests/evenkeel/tasks/"
CLIENT: Final = "tests/evenkeel/"
PASSED_ON: Final = "tests/broker/groups/test_forwarded_requests.py::"
LANE: Final = "tests/runtime/peers/test_large_lane.py::"
UNAWARE: Final = "tests/broker/handlers/test_unaware_clients.py::"
READ_INDEX: Final = "tests/runtime/engine/test_read_index.py::"
MENDING: Final = "tests/storage/log/test_mending.py::"
LIVES: Final = "tests/storage/test_lives.py::"
BROKER: Final = "tests/broker/producers/test_batch_checks.py::"
HANDLERS: Final = "tests/broker/handlers/"


class Row(NamedTuple):
    test: str
    edit: Where


BUGS: Final = {
    "23.5: whose a record with a flipped bit in its header was, nobody can tell": Row(
        f"{MENDING}test_a_flipped_bit_in_the_header_of_a_chosen_slot_costs_nobody_a_vote",
        (_whose, "return repaired_header(file", "return None and repaired_header(file"),
    ),
    "23.5: a header is mended that the whole record does not confirm": Row(
        f"{MENDING}test_what_the_record_does_not_confirm_is_not_taken_for_its_header",
        (repaired_header, "== checksum:", "!= -1:"),
    ),
    "23.5: the word of those who have only just started is enough": Row(
        "tests/runtime/membership/test_admission.py::"
        "test_who_has_only_just_started_is_not_enough_while_others_may_come",
        (Admission._is_known, "or self._has_waited", "or True"),
    ),
    "23.5: a promise is enough to find that an empty directory has forgotten": Row(
        "tests/simulator/whole/test_young.py",
        (untouched_in, "if not only_promised(found)", ""),
    ),
    "23.5: votes are nothing that an empty directory may have forgotten": Row(
        "tests/runtime/membership/test_keeping_node.py"
        "::test_whose_log_has_only_promises_knows_an_empty_directory",
        (only_promised, "found.votes or ", ""),
    ),
    "23.5: a life that was not known is a past that is": Row(
        "tests/runtime/membership/test_unknown_lives.py",
        (Admission._judgement, "life.previous and self._unknown", "False and self._unknown"),
    ),
    "23.5: an empty directory makes a majority": Row(
        "tests/runtime/membership/test_admission.py"
        "::test_an_empty_directory_that_does_not_take_part_is_no_majority",
        (Admission._missing_of, "known_by -= self._blank", "pass"),
    ),
    "23.5: a start that reached nobody is a directory's past": Row(
        f"{LIVES}test_an_old_copy_stays_an_old_copy_however_often_it_starts",
        (identity.boot, "lives.admitted_before(old.incarnation)", "old.incarnation"),
    ),
    "23.6: what peers know of later lives is forgotten": Row(
        f"{LIVES}test_the_next_start_is_above_what_the_peers_know",
        (identity.boot, "lives.above, ", ""),
    ),
    "23.5: a node registers before its disk knows that it was admitted": Row(
        "tests/runtime/membership/test_keeping_node.py::"
        "test_a_node_registers_only_a_life_that_its_disk_knows_to_be_admitted",
        (Shell.tick, "or self.local_records.admission_is_durable()", "or True"),
    ),
    "22.2: all that is large is given to the socket at once": Row(
        f"{LANE}test_what_is_small_waits_for_one_large_message_at_most",
        (LargeLane.feed, "while not channel.unsent_bytes and not", "while not"),
    ),
    "22.2: what is sent again is queued again": Row(
        f"{LANE}test_what_still_waits_is_not_taken_a_second_time",
        (LargeLane.add, "key in self._keys or key == self._leaving", "False"),
    ),
    "22.2: a commit passes its entry": Row(
        f"{LANE}test_what_tells_of_a_log_does_not_pass_its_large_entries",
        (LargeLane.takes, "self.last and type", "False and type"),
    ),
    "22.2: a large entry is sent again as soon as a small one": Row(
        "tests/paxos/liveness/test_timers.py"
        "::test_a_large_entry_is_not_sent_again_while_it_may_still_be_on_its_way",
        (timers._retransmit, "flight.entry.size * LARGE_NS_PER_BYTE", "0"),
    ),
    "22.2: a lease is renewed behind a large entry": Row(
        "tests/paxos/liveness/test_timers.py"
        "::test_a_lease_is_renewed_before_a_large_entry_and_not_behind_it",
        (mastership.renew_before, "if renewal_due(replica, now, early_ns):", "if False:"),
    ),
    "22.2: who is not read is taken for one that sends nothing": Row(
        "tests/runtime/clients/test_clients_floods.py"
        "::test_who_is_not_read_is_not_told_that_it_does_not_go_on",
        (Client.stands_still, "(self.paused or channel.untaken_bytes)", "channel.untaken_bytes"),
    ),
    "22.2: who waits for a late node is taken for one that sends nothing": Row(
        "tests/runtime/clients/test_clients_floods.py::test_what_was_not_taken_yet_has_come",
        (Client.stands_still, "(self.paused or channel.untaken_bytes)", "self.paused"),
    ),
    "26.8: a commit that was refused for certain is answered as unknown": Row(
        f"{PASSED_ON}test_a_commit_that_waited_for_the_end_of_the_handover_is_passed_on",
        (ConsumerGroups._answer_late, "refused = sends_away(reply.response)", "refused = False"),
    ),
    "26.8: any mastership takes what was passed on to another": Row(
        f"{PASSED_ON}test_only_the_mastership_that_is_meant_takes_a_request",
        (RequestForwarding._admit, "epoch != guest.epoch or late", "late"),
    ),
    "26.8: a request that comes late is taken": Row(
        f"{PASSED_ON}test_a_request_that_comes_late_does_not_undo_what_was_committed_since",
        (RequestForwarding._admit, "now.wall_ns > guest.until_wall_ns", "False"),
    ),
    "26.8: requests pass those that are under way to another node": Row(
        f"{PASSED_ON}test_the_group_comes_back_while_a_request_is_on_its_way",
        (RequestForwarding._go_on, "if lane.unsettled:", "if False:"),
    ),
    "26.8: requests pass a commit whose outcome is open": Row(
        f"{PASSED_ON}test_nothing_overtakes_a_commit_whose_outcome_the_log_decides",
        (RequestForwarding.left, "if number:", "if False:"),
    ),
    "26.8: what was on a link that is lost is told to be not done": Row(
        f"{PASSED_ON}test_a_lost_link_is_a_lost_answer",
        (
            RequestForwarding._give_up,
            "fate_unknown(taken.request)",
            "refusal(taken.request, ErrorCode.NOT_COORDINATOR)",
        ),
    ),
    "26.8: a peer's request is believed about the Paxos group": Row(
        f"{PASSED_ON}test_what_is_not_understood_has_no_effect[other group]",
        (
            RequestForwarding.on_request,
            "not self._here.keeps(group, request.group)",
            "False",
        ),
    ),
    "26.8: requests are sent to nodes that do not know them": Row(
        "tests/runtime/peers/test_group_requests.py"
        "::test_a_node_of_an_earlier_release_is_never_asked",
        (Peers.knows_group_requests, "self.outgoing[to].knows_group_requests", "True"),
    ),
    "F4: what a full disk refuses is forgotten": Row(
        "tests/runtime/engine/test_engine.py"
        "::test_room_again_lets_nothing_through_that_came_behind_a_refusal",
        (
            Submitting.on_forward,
            "refusal = NotDone(FailureReason.OVERLOADED, self.multi.me)",
            "return answer(NotDone(FailureReason.OVERLOADED, self.multi.me))",
        ),
    ),
    "ADR 46: an open vote is not written again": Row(
        "tests/runtime/disk/test_repair.py::test_an_open_vote_that_is_damaged_is_written_again",
        (
            write_again,
            "if vote is not None:\n            records",
            "if False:\n            records",
        ),
    ),
    "ADR 46: who is behind damage without a proof votes on": Row(
        "tests/storage/log/test_recovery.py::test_flipped_bytes_of_a_synced_log_are_all_found",
        (LogState.costs_vote, "hole.slot <= group.proven", "True"),
    ),
    "ADR 46: there is no gap": Row(
        "tests/paxos/changes/test_gap.py",
        (Core.has_gap, "self.learner.applied < self.proven", "False"),
    ),
    "F3: one verdict takes all votes": Row(
        "tests/runtime/membership/test_admission.py::test_one_forged_verdict_costs_a_moment_and_no_vote",
        (Admission.on_verdict, "if said_before:", "if True:"),
    ),
    "F3: a verdict counts that nobody has asked for": Row(
        "tests/runtime/membership/test_admission.py::test_what_was_not_asked_is_not_answered",
        (Admission.on_verdict, "node not in self._asked", "False"),
    ),
    "F3: who has doubts is asked by how far the log goes now": Row(
        "tests/runtime/membership/test_admission.py::test_who_has_doubts_is_asked_what_it_was_asked_at_first",
        (Admission.life, "self._found, settled=False", "place, settled=False"),
    ),
    "F3: how far a log goes is kept when it is said once": Row(
        "tests/runtime/membership/test_admission.py"
        "::test_how_far_a_log_goes_is_believed_when_it_is_said_again",
        (Admission.witness, "min(before[1], life.place)", "life.place"),
    ),
    "ADR 50: a former master reads before the master has said how far": Row(
        f"{UNAWARE}test_the_answer_is_not_older_than_the_question",
        (_Fetch._problem, "leader.node != me and not self._is_fresh(one.group)", "False"),
    ),
    "ADR 50: the answer to an older question is enough": Row(
        f"{READ_INDEX}test_what_comes_while_a_question_is_under_way_gets_one_of_its_own",
        (ReadIndex.ask, "question.later.append(told)", "question.told.append(told)"),
    ),
    "ADR 50: a master whose lease is over says how far its log is": Row(
        f"{READ_INDEX}test_a_node_that_does_not_act_gives_no_answer",
        (Submitting._answer_reader, "not replica.acting(self.clock.now())", "False"),
    ),
    "ADR 50: what the master had is not waited for": Row(
        f"{READ_INDEX}test_one_that_is_behind_waits_until_it_has_caught_up",
        (ReadIndex.look, "applied >= question.slot", "True"),
    ),
    "ADR 50: a batch overtakes on its way to the next master": Row(
        "tests/paxos/test_intake_moves.py"
        "::test_what_is_under_way_to_one_master_is_not_overtaken_on_the_way_to_the_next",
        (Intake._may_follow, "to == self._forwarded_to and fits", "fits"),
    ),
    "ADR 50: between two masters it is refused": Row(
        "tests/paxos/test_intake_moves.py::test_between_two_masters_it_waits_in_its_place",
        (Intake._route, "if waits else None", "if False else None"),
    ),
    "ADR 50: a connection with a request under way is closed": Row(
        "tests/runtime/balancing/test_draining.py",
        (Draining.step, "return self._owes_answers() and", "return False and"),
    ),
    "F4: what nobody takes is tried without a pause": Row(
        "tests/paxos/test_intake_order.py"
        "::test_one_that_nobody_takes_looks_for_its_master_in_steps_and_not_for_ever",
        (Intake._take_back, "self._again_at = now.boot_ns + FORWARD_AGAIN_NS", "pass"),
    ),
    "F1: what only this mastership may do goes to the next master": Row(
        "tests/paxos/test_intake.py"
        "::test_what_only_this_mastership_may_do_is_refused_when_it_is_over",
        (Intake._route, "if fenced:", "if False:"),
    ),
    "ownership: an instance of a classic group is two members": Row(
        "tests/coordinator/test_ownership.py::test_whatever_is_claimed_a_classic_group_goes_on",
        (Joining._join_unknown, "if former is not None:", "if False:"),
    ),
    "KIP-1251: what is to be given up is not held any more": Row(
        "tests/coordinator/test_assigned_commits.py"
        "::test_what_is_to_be_given_up_may_be_committed_under_an_older_epoch_as_well",
        (AssignedMember.held_since, " and part not in self.revoking", ""),
    ),
    "KIP-1251: what is kept counts from the new epoch on": Row(
        "tests/coordinator/test_assigned_commits.py"
        "::test_a_static_member_that_comes_back_commits_from_its_first_epoch_on",
        (AssignedMember._since, "else max(0, at)", "else group_epoch"),
    ),
    **{name: Row(*row) for name, row in {**CONSUMERS_AND_REPLICAS, **ACCESS, **HTTP}.items()},
    "an eviction that a doubt forgets begins a session": Row(
        "tests/coordinator/test_waits.py"
        "::test_an_eviction_that_a_mastership_in_doubt_forgets_is_made_up_for_after_a_grace",
        (WaitRecords.left, "if member not in group.members:", "if False:"),
    ),
    "whoever reads the clock first in a round turns time back": Row(
        "tests/broker/groups/test_coordinator_moves.py"
        "::test_a_round_that_began_earlier_does_not_turn_time_back",
        (ConsumerGroups._ms, "max(self._latest_ms, now.boot_ns // MS)", "now.boot_ns // MS"),
    ),
    "the registry is asked for names that no topic can have": Row(
        "tests/broker/handlers/test_known_names.py::test_no_topic_can_have_such_a_name",
        (known_names._could_be, " and name_problem(name) is None", ""),
    ),
    "an LZ4 frame may be cut short": Row(
        "tests/wire/test_lz4_frame.py::test_a_frame_that_is_cut_short_is_refused",
        (lz4_frame.check_frame, "if end != size:", "if end < size:"),
    ),
    "a bad sector that is known keeps a node from starting": Row(
        "tests/storage/log/test_bad_blocks.py"
        "::test_a_bad_sector_where_only_zeros_were_has_lost_nothing",
        (Recovery._piece, "if not self._is_as_found(log, number):", "if True:"),
    ),
    "D10: what is being assigned is read": Row(
        f"{CLIENT}consumer/test_assigned.py::test_D10_while_the_listener_runs_nothing_is_read_and_it_may_seek",
        (Consumer.assigned, "state.settling = True", "pass"),
    ),
    "D10: an assignment leaves the interval as it is": Row(
        f"{CLIENT}consumer/test_assigned.py::test_D10_an_assignment_sets_the_interval_of_commits_back",
        (Consumer.assigned, "self._auto_commit.restart()", "pass"),
    ),
    "D10: the interval is set back without a bound": Row(
        f"{CLIENT}consumer/test_autocommit.py::test_rebalances_without_an_end_do_not_put_it_off_for_ever",
        (AutoCommit.restart, ", self._latest)", ", 1e9)"),
    ),
    "D10: what failed waits for the interval": Row(
        f"{CLIENT}consumer/test_autocommit.py::test_D10_what_failed_is_tried_again_soon_and_then_as_before",
        (AutoCommit.run, "and failed.retriable", "and False"),
    ),
    "E13: a commit that came too late is a report": Row(
        f"{CLIENT}consumer/test_fetcher.py::"
        "test_E13_only_progress_that_was_committed_in_time_counts_as_reported",
        (Fetcher._tell_progress, "done = False", "done = True"),
    ),
    "E13: a commit that failed is a report": Row(
        f"{CLIENT}consumer/test_assigned.py::test_E13_a_commit_that_fails_is_no_report",
        (Consumer._commit_processed, "return error", "return None"),
    ),
    "E14: it is reported before it is committed": Row(
        f"{CLIENT}consumer/test_fetcher.py::test_E14_nothing_is_reported_before_its_commit_is_answered",
        (
            Fetcher._tell_progress,
            "done = False",
            "done = False\n    state.reported = max(request for request, _ in wanted.values())",
        ),
    ),
    "point 8: a static leader that comes back does not watch": Row(
        f"{CLIENT}consumer/test_membership.py::"
        "test_a_leader_that_comes_back_disturbs_nobody_where_nothing_has_changed",
        (Membership._is_out_of_date, "await self._watch(", "list("),
    ),
    "point 8: a static leader that comes back compares nothing": Row(
        f"{CLIENT}consumer/test_membership.py::"
        "test_a_leader_that_comes_back_shares_what_was_added_while_it_was_away",
        (Membership._is_out_of_date, "given != {", "None is {"),
    ),
    "C2, C6: a snapshot loses stop_all": Row(
        f"{TASKS}test_ledger.py::test_C2_C6_nothing_of_the_state_is_lost_in_a_snapshot",
        (
            Ledger.restore,
            'self.plan_offset, self.stop_all = state["plan_offset"], state["stop_all"]',
            'self.plan_offset = state["plan_offset"]',
        ),
    ),
    "C2, C6: a snapshot loses stop_all, in worlds": Row(
        f"{TASKS}test_worlds.py::test_snapshots_and_stop_all_meet",
        (
            Ledger.restore,
            'self.plan_offset, self.stop_all = state["plan_offset"], state["stop_all"]',
            'self.plan_offset = state["plan_offset"]',
        ),
    ),
    "B3: newcomers stand by their names": Row(
        f"{TASKS}test_member.py::test_B3_a_member_too_many_stays_idle_and_disturbs_nobody",
        (Member._make_plan, "key=lambda name: ledger.members[name].joined", ""),
    ),
    "B9: a plan may give to who is evicted": Row(
        f"{TASKS}test_ledger.py::test_B9_a_plan_that_names_an_evicted_member_does_not_count",
        (Ledger._take_plan, "if not member.evicted", "if True"),
    ),
    "B12, C8: an acknowledgement counts for any round": Row(
        f"{TASKS}test_ledger.py::"
        "test_B12_C8_a_word_for_another_round_does_not_count_even_if_it_was_never_said",
        (Ledger._acknowledge, "and note.version == self.plan.version", ""),
    ),
    "B16: a checkpoint outlives its task": Row(
        f"{TASKS}test_ledger.py::test_B16_a_task_that_comes_again_under_its_name_begins_anew",
        (Ledger._forget, "self.checkpoints.pop(task, None)", "pass"),
    ),
    "F2: a node denies what it has not heard of": Row(
        "tests/broker/handlers/test_known_names.py::test_a_topic_that_was_just_made_elsewhere_is_found",
        (when_known, "if not missing or", "if True or"),
    ),
    "a node denies what it knows it has to learn": Row(
        "tests/broker/handlers/test_may_deny.py::test_who_asks_which_topics_there_are_waits_until_it_is_known",
        (metadata._denies_wrongly, "if may_deny(broker):", "if True:"),
    ),
    "a node denies partitions that it knows it has to learn": Row(
        "tests/broker/handlers/test_may_deny.py::test_who_asks_for_a_partition_looks_for_its_leader_again",
        (known_names.denial, "error if may_deny(broker) else instead", "error"),
    ),
    "clients are let in before it is known what there is": Row(
        "tests/runtime/clients/test_gate.py::test_nobody_is_let_in_before_it_is_known_what_there_is",
        (Gate._look_whether_learned, "if self._engine.is_current(REGISTRY_GROUP):", "if True:"),
    ),
    "who has heard of more takes itself for current": Row(
        "tests/runtime/membership/test_known_groups.py::test_who_was_away_is_current_when_it_has_caught_up",
        (progress.is_current, "replica.learner.behind or replica.doubt", "replica.doubt"),
    ),
    "who was told nothing takes itself for current": Row(
        "tests/runtime/membership/test_known_groups.py::test_who_was_away_is_current_when_it_has_caught_up",
        (progress.is_current, "is_quorum(told, replica.members)", "True"),
    ),
    "a change is told before all have heard of it": Row(
        "tests/broker/handlers/test_known_names.py::test_a_change_is_told_when_every_node_has_heard_of_it",
        (
            changes.once_everywhere,
            "broker.delayed_operations.until(heard,",
            "broker.delayed_operations.until(lambda: True,",
        ),
    ),
    "a topic that Metadata makes is told before all have heard of it": Row(
        "tests/broker/handlers/test_known_names.py"
        "::test_a_topic_that_metadata_makes_is_told_when_every_node_has_heard_of_it",
        (metadata._on_created, "partial(once_everywhere, broker, deadline, done)", "done"),
    ),
    "B16: a slice's last words are not written": Row(
        f"{TASKS}test_slices.py::test_B16_a_checkpoint_is_written_now_and_then_and_at_the_end",
        (_Reading.last_checkpoint, "while not written and", "while False and"),
    ),
    "B16: a slice's last words have one try": Row(
        f"{TASKS}test_slices.py::test_B16_the_last_checkpoint_has_as_long_as_the_slice_is_ours",
        (
            _Reading.last_checkpoint,
            "written = await self.checkpoint()",
            "written = await self.checkpoint() or True",
        ),
    ),
    "B16: who has lost a slice hands its records over": Row(
        f"{TASKS}test_slices.py::test_B16_who_does_not_hold_the_slice_any_more_hands_nothing_over",
        (SliceReader._read, "if not reading.lease.held:", "if False:"),
    ),
    "B16: positions outlive their topic": Row(
        f"{TASKS}test_slices.py::test_B16_a_topic_that_was_made_anew_is_read_from_its_beginning",
        (Positions.fit, "another = self.topic_id != topic_id", "another = False"),
    ),
    "B15: a task is taken when the lease of who had it is over": Row(
        f"{TASKS}test_member.py::test_B15_the_spike_after_a_rebalance_is_no_higher_than_what_moved",
        (Member._hand_back, "if stopped:", "if stopped and self.phase is Phase.OVER:"),
    ),
    "A15: who stops does not say so": Row(
        f"{TASKS}test_member.py::test_A15_who_stops_says_so_and_need_not_be_declared_gone",
        (Member._leave, "self._effects.append(Write(Leave(by=self.name)))", "pass"),
    ),
    "A15: who stops does not say so, in a world": Row(
        f"{TASKS}test_member.py::test_A15_the_last_one_gets_everything",
        (Member._leave, "self._effects.append(Write(Leave(by=self.name)))", "pass"),
    ),
    "C1: followers bury nobody": Row(
        f"{TASKS}test_member.py::test_C1_a_follower_buries_a_leader_that_nobody_else_buries",
        (
            Member._declare_expired,
            "if name != self.name:",
            "if name != self.name and self.is_leader:",
        ),
    ),
    "E2: the size is no setting": Row(
        "tests/runtime/config/test_config.py::test_E2_the_time_and_the_size_of_batches_are_settings",
        (settings.intake, "batch_bytes_min=config.paxos.batch_bytes_min,", ""),
    ),
    "E6: the others' margin points the other way": Row(
        "tests/runtime/test_seed_rows.py::test_E6_the_master_lets_go_before_anybody_else_may_try",
        (Lease.free, "+ margin_ns", "- margin_ns"),
    ),
    "E11: any node begins": Row(
        "tests/simulator/test_the_steal_row_by_row.py::test_E11_only_the_ideal_node_begins",
        (
            Balancing._own_obstacle,
            "(view.placement[turn] != view.me, StealReason.OTHERS_TURN),",
            "",
        ),
    ),
    "E16: the lease's version is renewed in another mastership": Row(
        "tests/runtime/balancing/test_handovers.py::"
        "test_E16_a_master_that_has_changed_meanwhile_hands_over_nothing",
        (Handovers._sync, "if replica.lease.epoch == one.epoch:", "if True:"),
    ),
    "the loop's own writes store no mark": Row(
        "tests/storage/log/test_mark.py::"
        "test_each_way_of_writing_stores_how_far_the_log_is_durable[by_the_kernel]",
        (LogWrites.begin, "wakeup, then)", "wakeup)"),
    ),
    "a thread's writes store no mark": Row(
        "tests/storage/log/test_mark.py::"
        "test_each_way_of_writing_stores_how_far_the_log_is_durable[by_a_thread]",
        (LogWrites.write, "self._mark.store(batch.end)", "pass"),
    ),
    "point 3: records are stored unread": Row(
        f"{BROKER}test_what_nobody_could_read_is_not_stored",
        (Produce.append, "check_on_loop(batch, rules)", "header.max_timestamp_ms"),
    ),
    "point 3: records are stored unread where requests are as usual": Row(
        f"{BROKER}test_what_nobody_could_read_is_not_stored",
        (produce_usual._take, "or not _is_sound(broker, usual, batch)", ""),
    ),
    "point 3: what another node has sent is proposed unread": Row(
        f"{BROKER}test_what_a_node_forwards_is_read_as_well",
        (forwarded.problem, "check_forwarded(produced_batch(body, log_time=True))", "pass"),
    ),
    "point 3: a batch that is read aside is overtaken": Row(
        f"{BROKER}test_what_takes_long_is_read_aside_and_the_connection_waits",
        (Produce._read, "self.request.reply.stop_reading()", "pass"),
    ),
    "point 3: a batch behind one that is read aside is not": Row(
        f"{BROKER}test_batches_of_one_request_do_not_overtake_each_other",
        (Produce.append, "latest_ms is None or self.reading", "latest_ms is None"),
    ),
    "point 3: who has given up gets its batch stored": Row(
        f"{BROKER}test_who_has_given_up_gets_nothing_stored",
        (Produce._was_read, "if self.answered:", "if False:"),
    ),
    "point 3: a connection is read while its batch is": Row(
        "tests/runtime/clients/test_clients.py::test_nothing_overtakes_what_is_still_being_looked_at",
        (Client.go_on, "or self.looked_at", ""),
    ),
    "point 3: a lying greatest time is kept": Row(
        f"{BROKER}test_the_greatest_time_is_put_right",
        (Produce._submit, "with_greatest_time(batch, latest_ms)", "batch.data"),
    ),
    "point 3: offsets within a batch may be anything": Row(
        "tests/wire/test_record_check.py::test_records_that_cannot_be_read_are_refused_and_named",
        (record_check._walk, "or offset != expected", ""),
    ),
    "point 3: a length within a record may be anything": Row(
        "tests/wire/test_record_check.py::test_records_that_cannot_be_read_are_refused_and_named",
        (record_check._walk, "pos != stop or", ""),
    ),
    "a batch is stored with the codec it came with": Row(
        f"{HANDLERS}test_stored_codec.py::test_every_codec_becomes_the_topics",
        (reading_aside.another_codec, "== wanted.codec", ">= 0"),
    ),
    "a slow level holds up everybody's batches": Row(
        f"{HANDLERS}test_stored_codec.py::test_levels_are_used_up_to_the_default",
        (topic_configs.storing, "min(level, usual)", "level"),
    ),
    "acks=all is content with one replica too few": Row(
        f"{HANDLERS}test_stored_codec.py::test_acks_all_needs_so_many_in_sync",
        (replicas_in_sync.lacks_replicas, "len(in_sync) <", "len(in_sync) + 1 <"),
    ),
    "an assignment forgets who is named first": Row(
        f"{HANDLERS}topics/test_assignments.py::test_the_node_named_first_is_the_preferred_leader",
        (assignments.Chooser._candidates, "first or fits", "fits"),
    ),
    "a page begins where the last one ended and one further": Row(
        f"{HANDLERS}test_topic_partitions.py::test_pages_are_the_whole_in_order",
        (
            topic_partitions._look,
            "PartitionCursor(name, index)",
            "PartitionCursor(name, index + 1)",
        ),
    ),
    "deleting what nobody knows writes an entry": Row(
        f"{HANDLERS}test_alter_configs.py::test_any_setting_may_be_deleted",
        (alter_configs._changed, "if known is not None or", "if True or"),
    ),
    "both copies of the mark are in one place": Row(
        "tests/storage/log/test_mark.py::test_of_two_copies_a_torn_sector_leaves_the_other",
        (SyncedMark.next, "self._turn ^= 1", "pass"),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_broken_mechanism_is_noticed(name: str) -> None:
    row = BUGS[name]
    told = io.StringIO()
    with plant(Mutant("", name, (Edit(*row.edit),), row.test)), contextlib.redirect_stdout(told):
        code = pytest.main([*QUICKLY, row.test])
    assert code == pytest.ExitCode.TESTS_FAILED, told.getvalue()
