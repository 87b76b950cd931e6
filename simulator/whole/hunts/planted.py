"""Planted bugs of the shell: fixes of issues 22 and 23 that are taken out again."""

from collections.abc import Mapping
from typing import Final

from broker.disk_watch import DiskWatch
from broker.handlers.records.produce import Produce
from broker.handlers.topics import known_names, registry_changes
from broker.transfer import driver
from broker.transfer.driver import CatchingUp
from paxos.changes import doubt, rejoin, witness
from paxos.learner import Learner
from paxos.state.core import Core
from runtime.clients.clients import Clients
from runtime.clients.gate import Gate
from runtime.disk.log_server import LogServer
from runtime.engine.engine import Engine
from runtime.membership import local_records
from runtime.membership.quorum_contact import QuorumContact
from runtime.network.channel import Channel
from runtime.shell import Shell
from runtime.system.memory import ClientRoom
from runtime.upkeep.damaged_batches import DamagedBatches
from simulator.mutants.planting import Mutant, mutant
from storage.identity import boot
from storage.log.log_writes import LogWrites
from storage.log.wal import Wal

_HEARD: Final = "return [node for node, (_, heard) in self._heard.items() if heard > oldest]"

PLANTED: Final[Mapping[str, Mutant]] = {
    "one-of-two-speaks-too-soon": mutant(
        "ADR 39",
        "one of two that votes again counts as a second copy at once",
        (
            rejoin.try_to_vote_again,
            "replica.incomplete_to = rejoin.bar_of(members)",
            "pass",
        ),
        tests="tests/paxos/changes/test_rejoin.py",
    ),
    "scrubs-what-is-not-written": mutant(
        "damage",
        "what is not in a file yet, because its disk hangs, is taken for damage",
        (Wal.scrub_target, "if number > written >> OFFSET_BITS:", "if False:"),
        (Wal.scrub_target, "if number == written >> OFFSET_BITS:", "if end is None:"),
        tests="tests/storage/log/test_wal.py",
    ),
    "held-answers-are-contact": mutant(
        "ADR 42",
        "an answer that a link has held for seconds counts as contact of this moment",
        (Engine.on_clock, "if 2 * error_ns < ANSWER_LASTS_NS:", "if True:"),
        tests="tests/runtime/engine/test_contact_of_peers.py",
    ),
    "records-stored-unread": mutant(
        "records are read",
        "batches are stored whose records nobody could read",
        (Produce.append, "check_on_loop(batch, rules)", "header.max_timestamp_ms"),
        tests="tests/broker",
    ),
    "log-read-on-the-loop": mutant(
        "peers' work",
        "what a peer has missed is read on the event loop",
        (LogServer._serve, "if self.reader is None:", "if True:"),
        tests="tests/runtime/disk",
    ),
    "captives": mutant(
        "cut off",
        "a node that is cut off keeps its clients",
        (Gate.tick, "shut = contact.closed or self.learning", "shut = self.learning"),
        tests="tests/runtime/clients/test_gate.py",
    ),
    "blames-by-the-boot-clock": mutant(
        "cut off",
        "a node that was stopped itself counts its peers' answers as old",
        (
            QuorumContact._in_touch,
            _HEARD,
            "return [node for node, at in answered.items() if boot_ns - at < ANSWER_LASTS_NS]",
        ),
        tests="tests/runtime/membership/test_contact.py",
    ),
    "mark-on-the-loop": mutant(
        "hung disks",
        "the synced mark is written on the event loop",
        (
            LogWrites.begin,
            "then = self._mark.next(batch.end)",
            "self._mark.store(batch.end); then = None",
        ),
        tests="tests/storage/log",
    ),
    "hung-keeps-masters": mutant(
        "hung disks",
        "a node whose disk hangs keeps its masters: it renews them, and gives none away",
        (
            DiskWatch.look,
            "replica.election.abstaining = health.hung or self.leaving",
            "pass",
        ),
        (Shell._balance, " or self.engine.disk_health.degraded", ""),
        tests="tests/runtime/disk/test_ailing_disk.py",
    ),
    "forged-witness": mutant(
        "F3",
        "one wrong word of a peer takes a vote: it is remembered, and believed at once",
        (witness.note_witnessed, "replica.proposer.has_used(ballot)", "True"),
        (
            rejoin.on_witnessed,
            "allegation is not None and (claims or allegation.life != life)",
            "claims",
        ),
        (rejoin.on_witnessed, "claims and sender in replica.witnesses", "False"),
        tests="tests/paxos/test_words.py",
    ),
    "forged-progress": mutant(
        "F3",
        "a wrong number of slots is believed for ever, and told to others",
        (witness.progress_for, "learner.known_to", "learner.chosen_to"),
        (Learner.claims_are, "self.known_to, claimed", "self.chosen_to, claimed"),
        tests="tests/paxos/test_words.py",
    ),
    "difference-ignored": mutant(
        "ADR 39",
        "a log that differs from its peers' is noticed by nobody, and acted on",
        (doubt._hold_against, "replica.diverged.add(node)", "return"),
        tests="tests/paxos/changes/test_doubt.py",
    ),
    "unfinished-uncounted": mutant(
        "one account of memory",
        "requests that have begun are not counted",
        (ClientRoom.begin, "memory.frames += size", "pass"),
        (ClientRoom.end, "self._memory.frames -= size", "pass"),
        tests="tests/runtime/clients",
    ),
    "closed-keeps-memory": mutant(
        "one account of memory",
        "what a connection had begun to send outlives it",
        (Channel.close, "self._assembler.drop()", "pass"),
        tests="tests/runtime/clients",
    ),
    "silent-hold-places": mutant(
        "floods",
        "connections that say nothing keep others out",
        (
            Clients._keeps_out,
            "self.displaced_total += self._places.make(host, of_any=True)",
            "pass",
        ),
        tests="tests/runtime/clients/test_clients_floods.py",
    ),
    "state-within-a-round": mutant(
        "catching up",
        "a peer's state is taken over in the middle of a round that has applied entries",
        (driver.take_over, "node.end_round()", "pass"),
        tests="tests/broker/transfer",
    ),
    "topics-unknown-elsewhere": mutant(
        "topics",
        "who has made a topic is told before the others have heard of it, and they deny it",
        (
            registry_changes.once_everywhere,
            "broker.delayed_operations.until(heard, until, act)",
            "act()",
        ),
        (known_names.when_known, "if not missing or", "if True or"),
        tests="tests/broker/handlers/test_known_names.py",
    ),
    "damage-below-the-checkpoint": mutant(
        "ADR 46",
        "a damaged batch older than its group's checkpoint is asked of nobody",
        (DamagedBatches.tick, "len(self._wal.known_damage) != self._damage_seen", "False"),
        tests="tests/runtime/upkeep",
    ),
    "founded-alone-judges-nobody": mutant(
        "admission",
        "a node that founded its cluster alone says of no directory whether it knows it",
        (
            local_records.ask_peers,
            "def quorum_sets()",
            "if len(config.peers) == 1:\n        return None\n\n    def quorum_sets()",
        ),
        tests="tests/runtime/membership",
    ),
    "asks-unheard": mutant(
        "members that change",
        "who says that it does not vote is not noted by those who cannot answer yet",
        (
            rejoin.on_ask,
            "replica.peer(sender).cannot_vote_boot_ns = now.boot_ns",
            "if replica.can_vote():\n"
            "        replica.peer(sender).cannot_vote_boot_ns = now.boot_ns",
        ),
        tests="tests/paxos/changes/test_membership.py",
    ),
    "teachers-who-left": mutant(
        "catching up",
        "a group's state is asked only of those who were members by one's own log",
        (CatchingUp.candidates, "replica.others_to_ask()", "replica.others(replica.members)"),
        tests="tests/broker/transfer",
    ),
    "refused-until-the-clock-is-there": mutant(
        "ADR 16",
        "a life begins by the clock alone, although the peers know a later one of its node",
        (boot, "max(old.incarnation, lives.above, first - 1)", "max(old.incarnation, first - 1)"),
        tests="tests/storage/test_lives.py",
    ),
    "who-left-speaks": mutant(
        "ADR 4",
        "what members remember of a node counts after they have left the group",
        (
            Core.can_vote,
            "is_quorum((*self.verified, self.me), self.members)",
            "2 * len({*self.verified, self.me}) > len(self.members)",
        ),
        tests="tests/paxos/changes/test_rejoin.py",
    ),
}
