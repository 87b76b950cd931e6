"""Error codes: the table was made from kio's."""

from kio.schema.errors import ErrorCode as KioErrorCode

from wire.error_codes import ErrorCode


def test_error_codes_are_those_of_kafka() -> None:
    ours = [(code.name.lower(), int(code), code.retriable) for code in ErrorCode]
    assert ours == [(code.name, int(code), code.retriable) for code in KioErrorCode]
