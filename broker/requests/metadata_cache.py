"""The answer about all topics, encoded once and kept until anything in it has changed.

Most clients ask for it in the same version, and after a failover all of them at once: then it is
most useful. Everything it depends on is compared before every use, so nothing has to notify the
cache of changes.
"""

import struct
from collections.abc import Hashable
from typing import Final

from paxos.entry import Buffer

VARIANTS_MAX: Final = 32
"""Kept at the same time: one for each version and set of flags in use."""

_HEAD: Final = struct.Struct(">ii")


class MetadataCache:
    def __init__(self) -> None:
        self._state: Hashable = None
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, state: Hashable, variant: Hashable, correlation_id: int) -> list[Buffer] | None:
        """The whole frame for this request, if its answer is cached and `state` has not changed."""
        if state != self._state:
            return None
        body = self._bodies.get(variant)
        if body is None:
            return None
        return [_HEAD.pack(4 + len(body), correlation_id), body]

    def put(self, state: Hashable, variant: Hashable, frame: list[Buffer]) -> None:
        """Keep an encoded frame; all but its length and correlation id is the same for all
        clients."""
        if state != self._state or len(self._bodies) >= VARIANTS_MAX:
            self._state = state
            self._bodies.clear()
        self._bodies[variant] = b"".join(frame)[_HEAD.size :]
