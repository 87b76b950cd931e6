"""Error codes: the table was made from kio's; the second test lists the ones we rely on."""

from kio.schema.errors import ErrorCode as KioErrorCode

from wire.error_codes import ErrorCode


def test_error_codes_are_those_of_kafka() -> None:
    ours = [(code.name.lower(), int(code), code.retriable) for code in ErrorCode]
    assert ours == [(code.name, int(code), code.retriable) for code in KioErrorCode]


def test_the_ones_this_broker_lives_by() -> None:
    """By number: librdkafka retries on these and fails on those."""
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS == 14
    assert ErrorCode.UNSUPPORTED_VERSION == 35
    assert ErrorCode.UNKNOWN_LEADER_EPOCH == 75
    assert all(ErrorCode(number).retriable for number in (3, 5, 6, 7, 14, 15, 16, 19, 74, 75))
    assert not any(ErrorCode(number).retriable for number in (0, -1, 1, 35, 45, 47, 53, 87))
