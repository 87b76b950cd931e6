"""Planted bugs in what is concluded from peers' clocks (simulator/mutants/catalogue.py)."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from paxos.clocks.trust import Trust
from simulator.mutants import planting
from simulator.mutants.planting import Mutant

mutant = partial(planting.mutant, "ADR 43", tests="tests/runtime/system/test_clock.py")
"""They are hunted in worlds that test only clocks (simulator/clock_world.py)."""

CLOCKS: Final[Mapping[str, Mutant]] = {
    "lost-link-ends-doubt": mutant(
        "with a link goes what its peer has said against this clock",
        (
            Trust.unlinked,
            "self._linked.discard(node)",
            "self._intervals.pop(node, None); self.trusted = True",
        ),
    ),
    "old-agreement-ends-doubt": mutant(
        "trust comes back by what was said before it went",
        (Trust._judge, "known.answer > self._doubted_at_answer", "True"),
    ),
    "doubt-by-the-middle": mutant(
        "a slow reading counts as its middle when it is to prove a fault",
        (
            Trust._judge,
            "vouches = least < self._most_ns and most > -self._most_ns",
            "vouches = abs(least + most) // 2 < self._most_ns",
        ),
        why_not="it doubts too early, which costs masters and lets nobody act",
    ),
    "trust-by-the-middle": mutant(
        "a slow reading counts as its middle when it is to give trust",
        (
            Trust._judge,
            "proving += -self._most_ns < least and most < self._most_ns",
            "proving += abs(least + most) // 2 < self._most_ns",
        ),
    ),
    "slow-readings-dropped": mutant(
        "readings that took long are thrown away, whatever they prove",
        (Trust.on_answer, "if error_ns < 0:", "if error_ns > self._most_ns // 2:"),
    ),
    "readings-do-not-age": mutant(
        "who has not answered for long vouches for this clock for ever",
        (Trust._judge, "boot - known.heard_boot_ns >= READING_LASTS_NS", "False"),
        why_not="a majority of right peers does not fall silent in these worlds for so long",
    ),
    "stop-unnoticed": mutant(
        "a machine that stood still acts on until most peers have said so",
        (Trust._learn, "self._seems_stopped(node, boot)", "pass"),
    ),
    "words-that-waited-hide-a-stop": mutant(
        "the first word that waited while the machine stood still hides how far the others are",
        (
            Trust.on_told,
            "least_ns > (most if known.answered is None else least)",
            "least_ns > most",
        ),
        (Trust._learn, "(known.answered or known).at(boot)", "known.at(boot)"),
    ),
    "slow-peers-tell-no-stop": mutant(
        "of a stop only those can tell whose last answer was a proof",
        (
            Trust._learn,
            "least < self._most_ns <= heard.least",
            "most < self._most_ns <= heard.least",
        ),
    ),
    "asked-before-the-stop": mutant(
        "an answer that waited in the socket while the machine stood still proves its clock right",
        (Trust._judge, "known.asked_boot_ns >= self._stopped_boot_ns", "True"),
    ),
    "answers-put-together": mutant(
        "two answers that agree are taken for one that says what both do",
        (
            Trust._learn,
            "heard = attrs.evolve(known, heard_boot_ns=boot)",
            "heard = attrs.evolve(heard, least=max(least, heard.least),"
            " most=min(most, heard.most))",
        ),
    ),
    "unasked-word-vouches": mutant(
        "what a peer says unasked counts as an answer, and as a quick one",
        (Trust.on_told, "most=_NEVER", "most=least_ns, answer=self._answers + 1"),
    ),
}
