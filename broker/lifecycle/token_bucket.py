"""A rate limit: a token bucket that may be overdrawn once, because a batch is never split."""

import attrs

NS_PER_S = 1_000_000_000


@attrs.define(eq=False)
class TokenBucket:
    """`bytes_per_s` in the long run, and at most `burst_bytes` above that; 0: no limit."""

    bytes_per_s: int
    burst_bytes: int
    _level: float = attrs.field(init=False)
    _filled_ns: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._level = self.burst_bytes

    def open(self, now_ns: int, share: float = 1.0) -> bool:
        """Whether something may be taken now; `share` of the rate applied since the last call."""
        if not self.bytes_per_s:
            return True
        gained = (now_ns - self._filled_ns) * self.bytes_per_s * share / NS_PER_S
        self._level = min(self.burst_bytes, self._level + gained)
        self._filled_ns = now_ns
        return self._level > 0

    def take(self, size: int) -> None:
        self._level -= size
