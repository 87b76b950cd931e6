"""What may be deleted from the clients' topic: what was requested, and what its settings allow."""

from typing import Final

import attrs

from simulator.environment.violation import Violation

SHARE: Final = 0.9
"""At least this share of retention.bytes, which also counts files' headers, is left in batches."""
UNTOUCHED: Final = -1


@attrs.define(eq=False)
class Trims:
    asked: dict[int, int] = attrs.Factory(dict)
    """By number of the partition: the greatest offset below which deletion was requested."""
    bytes_least: int = UNTOUCHED
    """The lowest retention.bytes ever set; UNTOUCHED: none."""
    deleted: int = 0
    by_retention: int = 0

    def ask(self, partition: int, before: int) -> None:
        self.asked[partition] = max(before, self.asked.get(partition, 0))

    def keep(self, retention_bytes: int) -> None:
        """The setting is about to change."""
        known = self.bytes_least
        self.bytes_least = retention_bytes if known < 0 else min(known, retention_bytes)

    def trimmed(self, partition: int, start: int, bytes_left: int) -> None:
        """The log begins at `start` from now on."""
        self.deleted += 1
        if start <= self.asked.get(partition, 0):
            return
        self.by_retention += 1
        if self.bytes_least < 0 or bytes_left < SHARE * self.bytes_least:
            raise Violation(
                f"trim: partition {partition} begins at {start}, {self.asked.get(partition, 0)} "
                f"was asked for; {bytes_left} bytes are left of {self.bytes_least}"
            )
