"""How much data a node has to catch up on, and how short the log is: see suites/catchup.py."""

from typing import Final

import attrs

MIB: Final = 1 << 20


@attrs.frozen(kw_only=True)
class CatchupScale:
    bytes: int = 4096 * MIB
    """Before anything happens."""
    fill_bytes_per_s: int = 40 * MIB
    bytes_per_s: int = 4 * MIB
    """The load that continues meanwhile."""
    message_bytes: int = 16384
    log_bytes: int = 64 * MIB
    """The size limit of the nodes' logs; older data is in cold segments."""
    quiet_s: float = 10.0
    """Measured before anything happens."""

    @property
    def short_log(self) -> tuple[str, ...]:
        """The settings of nodes with such a log."""
        return (
            f"storage.segment_bytes={self.log_bytes // 4}",
            f"storage.log_bytes={self.log_bytes}",
            f"storage.checkpoint_bytes={self.log_bytes // 2}",
        )
