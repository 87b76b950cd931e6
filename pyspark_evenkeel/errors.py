"""The errors of the data source and its client: each says what failed, why, and what to do about
it.

Errors cross from Spark's Python workers to the driver, so they can be pickled. `retriable` means
that the same call may succeed later: the client itself retries for `retry_ms`, so a caller that
sees one has already waited. No error ever contains a password.
"""

from wire.error_codes import ErrorCode


class EvenkeelSparkError(Exception):
    """`what` failed, `why` as far as is known, and `advice` if there is any."""

    retriable = False

    def __init__(self, what: str, *, why: str = "", advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.advice = advice

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.advice})" if self.advice else text

    def __reduce__(self) -> tuple[object, ...]:
        """By attributes: by default, exceptions are rebuilt from their positional arguments."""
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(
    kind: type[EvenkeelSparkError], args: tuple[object, ...], state: dict[str, object]
) -> EvenkeelSparkError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(EvenkeelSparkError, ValueError):
    """Contradictory options, or a value that means nothing."""


class SecurityError(EvenkeelSparkError):
    """TLS or authentication failed in a way that a retry will not fix."""


class UnavailableError(EvenkeelSparkError):
    """No answer: no broker was reached, or it is unknown whether the request was carried out."""

    retriable = True


class LateError(UnavailableError):
    """There was no answer in time: the request may have been carried out."""


class BadAnswerError(UnavailableError):
    """The answer does not fit the request; the connection has been dropped."""


class UnsupportedError(EvenkeelSparkError):
    """The broker does not know this request, or no version of it that we speak."""


class RefusedError(EvenkeelSparkError):
    """A broker refused: `code` is Kafka's."""

    def __init__(
        self, what: str, *, code: int, why: str = "", advice: str = "", message: str | None = None
    ) -> None:
        known = ErrorCode(code) if code in _CODES else None
        name = f"error {code}" if known is None else known.name
        reason = f"{name}, {message}" if message else name
        super().__init__(what, why=f"{reason}; {why}" if why else reason, advice=advice)
        self.code = ErrorCode.UNKNOWN_SERVER_ERROR if known is None else known
        # Kafka's own client never shows this one: it starts again from its bootstrap servers.
        self.retriable = self.code.retriable or self.code == ErrorCode.REBOOTSTRAP_REQUIRED
        if not advice and known is not None:
            self.advice = _ADVICE.get(known, "")


class DataLossError(EvenkeelSparkError):
    """The log lacks (some of) the offsets from `start` up to `end`, which is exclusive.

    It has those from `log_start` up to `end_of_log`. `topic` and `partition` say whose log it is.
    If the topic was `replaced`, it is another topic's log and has none of the records that were
    meant.
    """

    def __init__(
        self,
        place: tuple[str, int],
        start: int,
        end: int,
        log_start: int,
        end_of_log: int,
        *,
        why: str = "",
        replaced: bool = False,
    ) -> None:
        self.topic, self.partition = place
        advice = (
            "start from offsets that exist, keep records for longer, or set "
            "failOnDataLoss=false to go on with what is there"
        )
        if replaced:
            why = "the topic was deleted and recreated, and its records are gone"
            advice = (
                "begin with a new checkpoint, or set failOnDataLoss=false: a stream goes on from "
                "the new topic's beginning, a batch query does without the old one's records"
            )
        elif not why and start < log_start:
            why = f"the log begins at {log_start}: older records were deleted, or expired"
        elif not why:
            why = f"the log ends at {end_of_log}: was the topic deleted and recreated?"
        super().__init__(
            f"offsets {start} to {end} of {self.topic}/{self.partition} are not there (any more)",
            why=why,
            advice=advice,
        )
        self.start = start
        self.end = end
        self.log_start = log_start
        self.end_of_log = end_of_log
        self.replaced = replaced


class RowError(EvenkeelSparkError, ValueError):
    """A row that cannot be written as it is."""


class ReplayError(EvenkeelSparkError):
    """A repeated micro-batch differs from what its first run has partly written."""


class GoneError(EvenkeelSparkError):
    """More than a range is gone of what a streaming query has read, or would have to read."""

    def __init__(self, what: str, *, why: str) -> None:
        super().__init__(
            what,
            why=why,
            advice="begin with a new checkpoint, or set failOnDataLoss=false to go on with what "
            "is there",
        )


class DamagedError(EvenkeelSparkError):
    """Records with a correct checksum are not what their batch says: they were written like
    that."""

    def __init__(self, place: tuple[str, int], offset: int, error: Exception) -> None:
        super().__init__(
            f"the records of {place[0]}/{place[1]} from offset {offset} on cannot be decoded",
            why=str(error),
            advice="find out what wrote them; to continue, start behind them",
        )


_CODES = frozenset(int(code) for code in ErrorCode)

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic first, or check its name",
    ErrorCode.MESSAGE_TOO_LARGE: "write smaller chunks, or raise max.message.bytes of the topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not do that with this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not use this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user may not do that with this cluster",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use a compression the broker knows",
}
