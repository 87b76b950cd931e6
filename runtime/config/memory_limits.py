"""Memory limits that fit into the memory which the operating system allows this process."""

from typing import Final

import attrs

from runtime.config.config import Config
from runtime.system.journal import Journal
from runtime.system.memory import memory_limit

MIB: Final = 1024 * 1024
OWN_BYTES: Final = 112 * MIB
"""What a node needs for itself: interpreter, code, state machines, disk buffers."""


def fit_to_limit(config: Config, journal: Journal) -> Config:
    """The configuration, with limits lowered to the memory of this process's control group, of
    which the other nodes of its machine get as much."""
    limit = memory_limit() // config.node.processes
    fit = fitted(config, limit)
    if fit is not config:
        journal.warning(
            "the memory limit is small: limits are lower than configured",
            memory_limit=limit,
            pending_bytes_per_node=fit.limits.pending_bytes_per_node,
            answer_bytes_per_node=fit.limits.answer_bytes_per_node,
            peer_queue_bytes=fit.limits.peer_queue_bytes,
            tail_bytes=fit.limits.tail_bytes,
        )
    return fit


def fitted(config: Config, limit: int) -> Config:
    """The configuration with memory limits for a process that may have `limit` bytes; 0: no limit.
    OWN_BYTES are kept free, and data that may be in memory twice (in a peer's queue and in the
    log's) is allowed half."""
    room = max(limit - OWN_BYTES, limit // 4)
    limits = config.limits
    floor = limits.frame_bytes_max  # with less, a request of the configured size would never fit
    if not limit:
        return config

    def fit(configured: int, share: int, least: int) -> int:
        return configured if configured <= share else max(share, min(least, configured))

    fitting = attrs.evolve(
        limits,
        pending_bytes_per_node=fit(limits.pending_bytes_per_node, room // 4, floor),
        pending_bytes_per_group=fit(limits.pending_bytes_per_group, room // 8, floor),
        answer_bytes_per_node=fit(limits.answer_bytes_per_node, room // 8, MIB),
        peer_queue_bytes=fit(limits.peer_queue_bytes, room // 8, floor),
        tail_bytes=fit(limits.tail_bytes, room // 16, 0),
    )
    return config if fitting == limits else attrs.evolve(config, limits=fitting)
