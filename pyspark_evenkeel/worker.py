"""What tasks share that run one after the other in the same worker process.

Workers are forked from a process that has not imported this, and run one task at a time.
"""

import gc
from typing import Final

from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings

CLUSTERS_KEPT_MAX: Final = 4
"""A worker that uses more clusters than this has to reconnect."""

_clusters: dict[ClusterSettings, Cluster] = {}
"""Open ones, in order of use: the latest is last."""
_frozen = False


def freeze_once() -> None:
    """pyspark collects garbage after every task, which scans everything ever imported: tens of
    milliseconds. What exists at the first task stays, so it need not be scanned again."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def connected(settings: ClusterSettings) -> Cluster:
    """The client that earlier tasks have used, if there is one; it stays open."""
    cluster = _clusters.pop(settings, None)
    if cluster is None:
        cluster = Cluster(settings)
        while len(_clusters) >= CLUSTERS_KEPT_MAX:
            _clusters.pop(next(iter(_clusters))).close()
    _clusters[settings] = cluster
    return cluster
