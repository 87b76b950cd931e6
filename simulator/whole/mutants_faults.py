"""Planted bugs about what befalls nodes, directories, topics and members (docs/simulator.md)."""

from collections.abc import Mapping
from typing import Final

from balancer.registry.catalogue import Catalogue
from broker.lifecycle import retention
from broker.lifecycle.compaction import Survey
from coordinator.live.rebalance import Rebalance
from paxos.clocks.clock import Clock
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.hosting import Hosting
from runtime.membership import handshake
from runtime.membership.admission import Admission
from runtime.upkeep.upkeep import Upkeep
from simulator.mutants.planting import Mutant, mutant
from storage.cold.reading import ColdReading
from storage.cold.store import ColdStore

MUTANTS: Final[Mapping[str, Mutant]] = {
    "sessions-never-end": mutant(
        "consumer groups",
        "who has not been heard for a session is kept",
        (Rebalance._session_over, "if member.join is not None", "if True or member.join"),
        tests="tests/coordinator",
    ),
    "epochs-begin-anew": mutant(
        "topics made anew",
        "the leader epochs of a topic made anew begin where they were",
        (
            Catalogue._raise_floor,
            "for index, (_, group) in enumerate(topic.partitions):",
            "for index, (_, group) in ():",
        ),
        tests="tests/balancer/test_registry.py",
    ),
    "retention-takes-half": mutant(
        "retention",
        "half of what is to be kept goes",
        (retention._too_many, "- rules.bytes\n", "- rules.bytes // 2\n"),
        tests="tests/broker/lifecycle/test_retention.py",
    ),
    "compaction-takes-the-latest": mutant(
        "compaction",
        "the latest record of a key goes, too",
        (Survey.replaced, "> offset", ">= offset"),
        tests="tests/broker/lifecycle",
    ),
    "drains-nothing": mutant(
        "drain",
        "who stops keeps its masters",
        (BalancingLoop.drain_next, "mine = self.masters(now)", "mine = []"),
        tests="tests/runtime/test_node.py",
    ),
    "the-added-forget": mutant(
        "members that change",
        "who was just added drops its votes when it is not wanted a moment later",
        (Hosting._knows_all, "return False", "return True"),
        tests="tests/runtime/balancing/test_hosting.py",
    ),
    "any-directory-is-known": mutant(
        "admission",
        "who comes with a lost or an old directory is taken for the one it was",
        (Admission._judgement, "return Judgement.FORGETFUL", "return Judgement.KNOWN"),
        (Admission._judgement, "else Judgement.FORGETFUL", "else Judgement.KNOWN"),
        tests="tests/runtime/membership/test_admission.py",
    ),
    "times-behind-holes": mutant(
        "damage",
        "a time is looked for behind blocks that are missing",
        (ColdReading._check_holes, "if hole is not None:", "if False:"),
        (ColdReading._check_end, "if tail is not None and", "if False and"),
        tests="tests/storage/cold/test_cold.py",
    ),
    "lost-ends-are-appended-to": mutant(
        "damage",
        "a cold file is appended to whose last block cannot be read",
        (ColdStore._takes_more, "if failure.errno not in UNREADABLE:", "return True"),
        (ColdStore._takes_more, "\n            raise", ""),
        tests="tests/storage/cold/test_cold.py",
    ),
    "cold-damage-stays": mutant(
        "damage",
        "damaged cold data is found and not mended",
        (Upkeep.damaged, "for one in found:", "for one in []:"),
        tests="tests/runtime/upkeep",
    ),
    "any-format-is-spoken": mutant(
        "formats of links",
        "nodes of two versions talk to each other",
        (handshake._check_formats, "if frames != FORMAT or", "if"),
        tests="tests/runtime/membership/test_greeting.py",
    ),
    "every-clock-is-trusted": mutant(
        "R12",
        "a node acts by its clock, whatever its peers' say",
        (Clock.now, "self.trust.trusted)", "True)"),
        tests="tests/runtime/system/test_clock.py",
    ),
}
