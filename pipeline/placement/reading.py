"""The load topic read without Spark: the input of `logic`, and what was skipped."""

from balancer.registry.load import LOAD_TOPIC, LoadReport
from pipeline.placement.logic import Tally, Timing, reports_in
from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.plain import records_since


def since_ms(now_ms: int, timing: Timing) -> int:
    """The time from which on reports are needed for the past that ends now."""
    return now_ms - 1_000 * (timing.past_s + timing.window_s + timing.lateness_s)


def read_reports(
    settings: ClusterSettings, now_ms: int, timing: Timing
) -> tuple[list[LoadReport], Tally]:
    """The load topic's reports of the past.

    Raises:
        EvenkeelSparkError: the cluster cannot be read from.
    """
    with Cluster(settings) as cluster:
        found = records_since(cluster, LOAD_TOPIC, since_ms(now_ms, timing))
        return reports_in((record.value for record in found), now_ms)
