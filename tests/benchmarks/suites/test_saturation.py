"""The search for the saturating rate, against systems whose capacity is known."""

import pytest

from benchmarks.load.jobs import Measured
from benchmarks.load.usage import Usage
from benchmarks.suites import saturation
from benchmarks.suites.bench import BenchmarkFailed
from benchmarks.suites.saturation import NEAR, saturating_rate


async def found_for(capacity: float, guess: float) -> tuple[float, list[float]]:
    tried: list[float] = []

    async def is_kept(rate: float) -> bool:
        tried.append(rate)
        return rate <= capacity

    return await saturating_rate(is_kept, guess), tried


@pytest.mark.parametrize("guess", [4_000, 9_000, 10_000, 11_000, 25_000])
async def test_the_rate_is_found_from_any_guess(guess: float) -> None:
    rate, tried = await found_for(10_000, guess)
    assert 10_000 / NEAR <= rate <= 10_000
    assert len(tried) <= saturation.STEPS_MAX


async def test_a_good_guess_is_cheap() -> None:
    _, tried = await found_for(10_000, 10_000)
    assert len(tried) <= 4


async def test_a_system_that_keeps_nothing_has_no_rate() -> None:
    with pytest.raises(BenchmarkFailed, match="not even"):
        await found_for(0, 1_000)


def test_a_rate_is_kept_if_nearly_all_that_is_due_is_answered_in_time() -> None:
    def measured(count: int) -> Measured:
        return Measured(seconds=2.0, count=count, bytes=0, usage=Usage(2.0, (), 0.1, 0.0))

    assert saturation.is_kept(measured(1_990), 1_000)
    assert not saturation.is_kept(measured(1_900), 1_000)
