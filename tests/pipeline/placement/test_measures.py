"""Why the mean: with bursts of load, percentiles and the built-in estimator move groups to and
fro."""

from tests.pipeline.placement.loads import BUILT_IN, play

HALF_AN_HOUR_S = 1_800
SEED = 1


def test_by_any_measure_a_steady_skewed_load_is_spread_once() -> None:
    unmoved = play("steady", None, SEED, HALF_AN_HOUR_S)
    for measure in (BUILT_IN, "mean", "p95"):
        found = play("steady", measure, SEED, HALF_AN_HOUR_S)
        assert 0 < found.moves <= 6
        assert found.fullest < 1.3 < 1.5 < unmoved.fullest


def test_where_single_groups_spike_the_mean_moves_least_and_is_as_even() -> None:
    mean, p95, built_in = (
        play("spikes", measure, SEED, 2 * HALF_AN_HOUR_S) for measure in ("mean", "p95", BUILT_IN)
    )
    assert mean.moves * 2 <= p95.moves <= built_in.moves
    assert mean.fullest <= p95.fullest
