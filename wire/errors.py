"""The errors of wire/: one class for malformed bytes.

A `ProtocolError` is always the peer's fault: the connection that sent the bytes is closed, and
nothing else happens. A value that cannot be encoded is our own bug and raises whatever the
interpreter raises for it.
"""


class ProtocolError(Exception):
    """`what` is wrong, in `where` (message and field), at byte `at` of the frame."""

    def __init__(self, what: str, where: str, at: int) -> None:
        super().__init__(f"{where}, at byte {at}: {what}")
        self.what = what
        self.where = where
        self.at = at
