"""What the engine counts: plain integers, read by the metrics."""

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
    """The longest gap between two ticks since the metrics took it."""
    refused_disk_full: int = 0
