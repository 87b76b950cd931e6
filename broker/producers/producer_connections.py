"""Which idempotent producers have a connection to this node, so that a redirect can spare them a
pause.

A Kafka client that learns of a new leader from an error backs off for 100 ms. Told of it with a
success (KIP-951's field allows that), librdkafka moves without a pause if it has a connection to
the new leader; otherwise it holds its messages for up to a second (seen with 2.16). So while the
old master still forwards, the new one reports for each command whether its producer has been here,
and only then does the old one name the new leader in its answer. A writer
(`broker.state_machine.writer_state`) is a producer like any other here, except that it has the same
id after a restart.
"""

from collections import Counter
from typing import Final

from broker.proposals.commands import CommandError, CommandKind, parse
from wire.records.batch import parse_header

NO_PRODUCER: Final = -1


class ProducerConnections:
    """Producer ids by connection: each connection belongs to the last one that produced on it."""

    def __init__(self) -> None:
        self._connections: Counter[int] = Counter()

    def changed(self, before: int, after: int) -> None:
        """A connection was the producer `before`'s, and now is `after`'s."""
        if before != NO_PRODUCER:
            self._connections[before] -= 1
            if not self._connections[before]:
                del self._connections[before]
        if after != NO_PRODUCER:
            self._connections[after] += 1

    def __len__(self) -> int:
        return len(self._connections)

    def has(self, command: memoryview) -> bool:
        """Whether the producer of this command, forwarded to us, has a connection here."""
        if not self._connections:
            return False
        try:
            kind, _, body, _ = parse((command,))[0]
        except (CommandError, IndexError):
            return False
        return kind == CommandKind.RECORDS and parse_header(body).producer_id in self._connections
