"""The errors of the library: one family, each saying what failed, why, and what to do about it.

`retriable` means that the very same call may succeed later. The library itself retries such calls
for as long as its timeouts allow, so a caller that sees one has waited already. Nonsense bytes from
a broker are reported as DisconnectedError: the connection is closed, and nothing more is known.
"""

import copy
from typing import Self

from wire.error_codes import ErrorCode


class EvenkeelError(Exception):
    """`what` failed, `why` as far as known, and `advice` if there is any."""

    retriable = False

    def __init__(self, what: str, *, why: str = "", advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.advice = advice

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.advice})" if self.advice else text

    def again(self) -> Self:
        """The same error, to be raised once more: many tasks may wait for one failure."""
        twin = copy.copy(self)
        twin.__cause__ = self.__cause__
        return twin


class ConfigurationError(EvenkeelError, ValueError):
    """Settings that contradict each other, or a meaningless value."""


class ClosedError(EvenkeelError):
    """The producer, consumer or admin client has been closed, or was never entered."""


class UnreachableError(EvenkeelError):
    """No connection to a broker could be opened."""

    retriable = True


class AuthenticationError(EvenkeelError):
    """A broker does not believe who we are, or cannot prove that it knows our password (SCRAM).

    Trying again would not help, so nothing waits for it. It never contains a password or token.
    """


class DisconnectedError(EvenkeelError):
    """A connection ended before the answer came: whether the request was carried out is unknown."""

    retriable = True


class TimedOutError(EvenkeelError):
    """There was no answer in time: whether the request was carried out is unknown."""

    retriable = True


class UnsupportedError(EvenkeelError):
    """The broker does not support this request, or no version of it that we support."""


class BufferFullError(EvenkeelError):
    """The producer's memory was full for longer than `send_timeout_ms`."""

    retriable = True


class BrokerError(EvenkeelError):
    """A broker refused the request; `code` is Kafka's error code."""

    def __init__(self, what: str, *, why: str = "", advice: str = "", code: int = -1) -> None:
        super().__init__(what, why=why, advice=advice)
        self.code = ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR
        # Kafka's own client hides this error: it starts again with its bootstrap servers
        self.retriable = self.code.retriable or self.code == ErrorCode.REBOOTSTRAP_REQUIRED


class DeliveryError(EvenkeelError):
    """A record was not acknowledged. `maybe_written`: it may be in the log nevertheless; then
    sending it again duplicates it."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        advice: str = "",
        maybe_written: bool = False,
        retriable: bool = False,
    ) -> None:
        super().__init__(what, why=why, advice=advice)
        self.maybe_written = maybe_written
        self.retriable = retriable


class OffsetError(EvenkeelError):
    """There is no offset to continue from, and the consumer is configured to report that."""


class CommitError(EvenkeelError):
    """Offsets were not committed: other members own the partitions now."""


class ListenerError(EvenkeelError):
    """A callback of the application failed; its own error is the cause."""


class FencedError(EvenkeelError):
    """Another member or producer has taken this one's identity; this one must not continue."""


class LeaseLostError(EvenkeelError):
    """A task of a task group is no longer ours: another member may run it already."""


class LedgerError(EvenkeelError):
    """The ledger of a task group has changed: deleted, truncated, or written by something else."""


_CODES = frozenset(int(code) for code in ErrorCode)

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic first, or wait until it is known",
    ErrorCode.TOPIC_ALREADY_EXISTS: "use it, or delete it first",
    ErrorCode.MESSAGE_TOO_LARGE: "send less at once, or raise max.message.bytes of the topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249",
    ErrorCode.INVALID_REPLICATION_FACTOR: "at most the number of nodes; -1 takes the default",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.GROUP_ID_NOT_FOUND: "it never existed, was deleted, or has expired",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use a compression that the broker supports",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the broker has bounds for session_timeout_ms",
}


def refusal(what: str, code: int, message: str | None = None) -> BrokerError:
    """The error for an answer with this error code."""
    known = ErrorCode(code) if code in _CODES else None
    name = f"error {code}" if known is None else known.name
    why = f"{name}, {message}" if message else name
    advice = _ADVICE.get(known, "") if known is not None else ""
    return BrokerError(what, why=why, advice=advice, code=code)
