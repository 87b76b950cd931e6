"""The engine's counters: plain integers that the metrics read."""

import attrs


@attrs.define(eq=False)
class EngineStatistics:
    rounds: int = 0
    proposals: int = 0
    commands: int = 0
    forwarded_out: int = 0
    forwarded_in: int = 0
    applied: int = 0
    batches: int = 0
    loop_lag_ns_max: int = 0
    """The longest time between two ticks since the metrics last read it."""
    refused_disk_full: int = 0
