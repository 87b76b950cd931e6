"""A failing world is made smaller, still fails the same way, and can be replayed from the
output."""

import attrs
import pytest

from simulator.environment.options import PARSERS, Options, as_settings, changed, draw
from simulator.shrink import Shrunk, shrink
from simulator.swarm import Job, Verdict, options_of, run_world
from tests.doses import FULL

PLANTED = Job(0, mutant="found-ignored") if FULL else Job(1, mutant="act-until-apply")
"""Values found in phase 1 are not proposed again, which shows after 84 strikes; a master that goes
on while its Steal is under way, which shows after one."""


@pytest.fixture(scope="module")
def failed() -> Verdict:
    return run_world(PLANTED)


@pytest.fixture(scope="module")
def small(failed: Verdict) -> Shrunk:
    return shrink(PLANTED, failed)


def test_a_planted_bug_is_shown_by_a_smaller_world(failed: Verdict, small: Shrunk) -> None:
    assert small.verdict.checker == failed.checker, "the same checker objects"
    assert len(small.verdict.struck) < len(failed.struck) / 4
    assert set(small.verdict.struck) == set(small.options.kept or ()), "each of them happened"
    for strike in small.options.kept or ():
        without = attrs.evolve(small.options, kept=(small.options.kept or frozenset()) - {strike})
        verdict = run_world(PLANTED, options=without, stop_ns=3 * failed.at_ns)
        assert verdict.checker != failed.checker, f"strike {strike} was not needed"


def test_what_is_printed_replays_the_small_world_bit_for_bit(small: Shrunk) -> None:
    replayed = attrs.evolve(PLANTED, settings=small.settings)
    assert options_of(replayed) == small.options
    verdict = run_world(replayed)
    assert (verdict.failure, verdict.digest) == (small.verdict.failure, small.verdict.digest)
    *_, last = small.lines(PLANTED)
    assert last.strip().startswith(f"replay: python -m simulator --seed {PLANTED.seed}")
    for setting in small.settings:
        assert f"--set {setting}" in last


def test_without_the_bug_the_small_world_is_good(small: Shrunk) -> None:
    assert not run_world(Job(PLANTED.seed), options=small.options).failure


def test_every_setting_can_be_written_and_read_back() -> None:
    one, other = draw(1), draw(6)
    both = changed(one, as_settings(one, other))
    for name in PARSERS:
        assert getattr(both, name) == getattr(other, name), name
    fixed = {"seed", "timing", "tick_ns", "delay_min_ns", "delay_max_ns", "fsync_max_ns"}
    assert {field.name for field in attrs.fields(Options)} == fixed | PARSERS.keys()


@pytest.mark.parametrize("setting", ["seed=3", "nodes", "nodes=many", "disk=wet", "kept=1,x"])
def test_a_setting_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(ValueError):
        changed(draw(1), [setting])
