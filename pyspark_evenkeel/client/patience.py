"""Retries: for how long, how often, and the error at the end."""

import random
import time
from typing import Final

from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    BadAnswerError,
    EvenkeelSparkError,
    RefusedError,
    UnavailableError,
)
from wire.error_codes import ErrorCode

DOUBLINGS_MAX: Final = 16
BAD_ANSWERS_MAX: Final = 5
"""In a row: a broker that sends nonsense repeatedly will continue to."""
TRIES_MIN: Final = 2
"""However long the first one took."""
UNKNOWN_MS_MAX: Final = 5_000
"""A topic that was just created may be unknown for a moment; after that it does not exist."""
REASONS_MAX: Final = 4
"""Different failures that the final error lists."""

_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Patience:
    """For one operation: `what` failed if there has been no progress for `retry_ms`."""

    def __init__(self, what: str, settings: ClusterSettings) -> None:
        self._what = what
        self._settings = settings
        self._bad_answers = 0
        self.progressed()

    def progressed(self) -> None:
        """Something was done: earlier failures no longer count."""
        self._since = time.monotonic()
        self._failures = 0
        self._bad_answers = 0
        self._unknown_since: float | None = None
        self._reasons: dict[str, int] = {}

    def failed(self, error: EvenkeelSparkError, *, pause: bool = True) -> None:
        """Wait a bit before the next attempt, if there is to be one.

        Raises:
            EvenkeelSparkError: `error` itself if retrying does not help, or one that says what was
            tried.
        """
        if not error.retriable:
            raise error
        now = time.monotonic()
        self._failures += 1
        self._note(str(error))
        if isinstance(error, BadAnswerError):
            self._bad_answers += 1
            if self._bad_answers >= BAD_ANSWERS_MAX:
                raise error
        late = now - self._since >= self._settings.retry_ms / 1000
        over = late and self._failures >= TRIES_MIN
        if isinstance(error, RefusedError) and error.code in _UNKNOWN:
            self._unknown_since = self._unknown_since or now
            if over or now - self._unknown_since >= UNKNOWN_MS_MAX / 1000:
                raise error
        else:
            self._unknown_since = None
        if over:
            raise self._over(now - self._since) from error
        if pause or self._failures > 2:
            time.sleep(self._pause_s())

    def _note(self, reason: str) -> None:
        """The newest reason comes last."""
        count = self._reasons.pop(reason, 0)
        self._reasons[reason] = count + 1
        if len(self._reasons) > REASONS_MAX:
            del self._reasons[next(iter(self._reasons))]

    def _pause_s(self) -> float:
        """Doubling, with a fifth at random, so that many tasks do not return at the same time."""
        settings = self._settings
        doublings = min(self._failures - 1, DOUBLINGS_MAX)
        pause_ms = min(settings.backoff_ms << doublings, settings.backoff_max_ms)
        return pause_ms / 1000 * random.uniform(0.8, 1.2)

    def _over(self, seconds: float) -> UnavailableError:
        found = [
            reason if count == 1 else f"{reason} ({count} times)"
            for reason, count in reversed(self._reasons.items())
        ]
        return UnavailableError(
            self._what,
            why=f"tried {self._failures} times in {seconds:.0f} s. Last: "
            + "; before: ".join(found),
            advice="check that the cluster runs, and that bootstrap.servers and the addresses "
            "its brokers advertise can be reached from here",
        )
