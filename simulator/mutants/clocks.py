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
        "losing a link discards what its peer has said against this clock",
        (
            Trust.unlinked,
            "self._linked.discard(node)",
            "self._intervals.pop(node, None); self.trusted = True",
        ),
    ),
    "old-agreement-ends-doubt": mutant(
        "answers from before trust was lost restore it",
        (Trust._judge, "known.answer > self._doubted_at_answer", "True"),
    ),
    "doubt-by-the-middle": mutant(
        "a slow reading counts as its middle to prove a fault",
        (
            Trust._judge,
            "vouches = least < self._most_ns and most > -self._most_ns",
            "vouches = abs(least + most) // 2 < self._most_ns",
        ),
        why_not="it doubts too early, which costs masterships but lets no node act wrongly",
    ),
    "trust-by-the-middle": mutant(
        "a slow reading counts as its middle to give trust",
        (
            Trust._judge,
            "proving += -self._most_ns < least and most < self._most_ns",
            "proving += abs(least + most) // 2 < self._most_ns",
        ),
    ),
    "slow-readings-dropped": mutant(
        "slow readings are discarded, whatever they prove",
        (Trust.on_answer, "if error_ns < 0:", "if error_ns > self._most_ns // 2:"),
    ),
    "readings-do-not-age": mutant(
        "a peer that has long been silent vouches for this clock for ever",
        (Trust._judge, "boot - known.heard_boot_ns >= READING_LASTS_NS", "False"),
        why_not="no majority of right peers is silent for that long in these worlds",
    ),
    "stop-unnoticed": mutant(
        "a machine that stood still continues to act until most peers have said so",
        (Trust._learn, "self._seems_stopped(node, boot)", "pass"),
    ),
    "words-that-waited-hide-a-stop": mutant(
        "the first message that waited while the machine stood still hides the others' lead",
        (
            Trust.on_told,
            "least_ns > (most if known.answered is None else least)",
            "least_ns > most",
        ),
        (Trust._learn, "(known.answered or known).at(boot)", "known.at(boot)"),
    ),
    "slow-peers-tell-no-stop": mutant(
        "only peers whose last answer was a proof can report a stop",
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
        "two answers that agree are combined into one",
        (
            Trust._learn,
            "heard = attrs.evolve(known, heard_boot_ns=boot)",
            "heard = attrs.evolve(heard, least=max(least, heard.least),"
            " most=min(most, heard.most))",
        ),
    ),
    "unasked-word-vouches": mutant(
        "an unrequested message counts as a quick answer",
        (Trust.on_told, "most=_NEVER", "most=least_ns, answer=self._answers + 1"),
    ),
}
