"""What tasks share that run one after the other in the same worker process.

Workers are forked from a process that has not imported this, and run one task at a time.
"""

import gc
from typing import Final

from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings

CLUSTERS_KEPT_MAX: Final = 4
"""A worker that turns to more clusters than that connects anew."""

_clusters: dict[ClusterSettings, Cluster] = {}
"""Connected already; the one used last stands last."""
_frozen = False


def freeze_once() -> None:
    """pyspark collects garbage after every task, looking at all that was ever imported: tens of
    milliseconds. What is there by the first task stays, so it need not be looked at again."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def connected(settings: ClusterSettings) -> Cluster:
    """The client that the task before has used, if there was one; it is not closed."""
    cluster = _clusters.pop(settings, None)
    if cluster is None:
        cluster = Cluster(settings)
        while len(_clusters) >= CLUSTERS_KEPT_MAX:
            _clusters.pop(next(iter(_clusters))).close()
    _clusters[settings] = cluster
    return cluster
