"""A record batch on its way out of the log: to a cold segment, or to a peer."""

import attrs

from paxos.entry import Buffer


@attrs.frozen
class Batch:
    """A record batch with its offset and epoch: offsets `base` up to, not including, `end`."""

    base: int
    end: int
    max_timestamp_ms: int
    data: Buffer
