"""Bounds of memory that fit what the operating system lets this process have."""

from typing import Final

import attrs

from runtime.config.config import Config
from runtime.system.journal import Journal
from runtime.system.memory import memory_limit

MIB: Final = 1024 * 1024
OWN_BYTES: Final = 112 * MIB
"""What a node needs for itself: the interpreter, the code, state machines, buffers of the disk."""


def fit_to_limit(config: Config, journal: Journal) -> Config:
    """The configuration as far as this process's control group has the memory for it."""
    limit = memory_limit()
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
    """The same with bounds of memory that fit what the operating system lets this process have; 0
    for no limit. What a node needs for itself is left out, and what is bounded twice (in the queue
    of a peer and in the log's) is given half."""
    room = max(limit - OWN_BYTES, limit // 4)
    limits = config.limits
    pending = min(limits.pending_bytes_per_node, room // 4)
    floor = limits.frame_bytes_max  # smaller, and what is configured could never be sent
    if not limit or room >= 4 * limits.pending_bytes_per_node:
        return config
    fitting = attrs.evolve(
        limits,
        pending_bytes_per_node=max(pending, floor),
        pending_bytes_per_group=max(min(limits.pending_bytes_per_group, pending // 2), floor),
        answer_bytes_per_node=max(min(limits.answer_bytes_per_node, room // 8), MIB),
        peer_queue_bytes=max(min(limits.peer_queue_bytes, room // 8), floor),
        tail_bytes=min(limits.tail_bytes, room // 16),
    )
    return attrs.evolve(config, limits=fitting)
