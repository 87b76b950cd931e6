"""Planted bugs in what is concluded from messages: a false one has lasting consequences."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from paxos import validation
from paxos.changes import rejoin, witness
from paxos.learner import Learner
from paxos.liveness import asking
from paxos.liveness.questions import Questions
from paxos.state.rejoin import Rejoin
from simulator.mutants import planting
from simulator.mutants.planting import Mutant

SETTINGS: Final = ("faults=WORDS,CRASH,LOST_DISK", "fault_gap_ns=250000000", "judged=0")
TESTS: Final = "tests/paxos/test_words.py"

mutant = partial(planting.mutant, "F3", settings=SETTINGS, tests=TESTS)

WORDS: Final[Mapping[str, Mutant]] = {
    "witness-of-anything": mutant(
        "a peer that claims to have accepted an unused ballot is told so from then on",
        (witness.note_witnessed, "replica.proposer.has_used(ballot)", "True"),
        why_not="it costs the liar its vote, if it restarts before the other one does",
    ),
    "life-that-forgets": mutant(
        "a node believes that it has forgotten a promise of its present life",
        (rejoin.on_witnessed, "claims and sender in replica.witnesses", "False"),
        why_not="it must be said twice, and the rejoin that follows repairs it",
    ),
    "word-believed-at-once": mutant(
        "one message is enough to make a node believe that it has forgotten a promise",
        (
            rejoin.on_witnessed,
            "allegation is not None and (claims or allegation.life != life)",
            "claims",
        ),
        why_not="it takes a false message while the node starts, and then repairs itself",
    ),
    "doubt-forgotten": mutant(
        "a peer that says that a promise is forgotten and then dies is not believed",
        (rejoin.on_witnessed, "claims or allegation.life != life", "claims"),
        (rejoin.tick_allegations, "not replica.is_heard(node, now)", "False"),
        why_not="the only witness must die between two messages",
    ),
    "hearsay-spreads": mutant(
        "a node passes on what others claim about chosen slots",
        (witness.progress_for, "learner.known_to", "learner.chosen_to"),
        why_not="a node that believes that it is behind asks in vain, and continues",
    ),
    "word-that-stays": mutant(
        "a number still counts after a peer has corrected it",
        (Learner.claims_are, "self.known_to, claimed", "self.chosen_to, claimed"),
        why_not="a node that believes that it is behind asks in vain, and continues",
    ),
    "bar-of-the-highest-word": mutant(
        "a bar named by mistake keeps a node from voting for ever",
        (Rejoin.on_answer, "min(bar, told.bar)", "max(bar, told.bar)"),
    ),
    "any-round": mutant(
        "a peer may name any round of a ballot",
        (validation._round, "replica.round_seen + ROUND_AHEAD_MAX", "2**62"),
        why_not="the others continue above it: it uses up the rounds",
    ),
    "taught-unasked": mutant(
        "entries are learned from any node that sends some",
        (asking.may_be_an_answer, "replica.peer(node).asked and ", ""),
        why_not="the entries are true here; a lie about values is believed (docs/peer-work.md)",
    ),
    "questions-without-end": mutant(
        "a question that is under way is asked again",
        (Questions.may_ask, "group in self._open", "False"),
        tests="tests/paxos/liveness/test_asking.py",
        why_not="it costs the node that is asked, and nothing else",
    ),
}
