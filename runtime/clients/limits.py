"""The limits of clients' connections, in numbers."""

from typing import Final

import attrs

from broker.security.authentication import FRAME_BYTES_MAX as UNPROVED_BYTES_MAX
from wire.framing import KIB, FrameLimits

FETCH_KEY: Final = b"\x00\x01"
UNANSWERED_MAX: Final = 512
"""Unanswered requests per connection; librdkafka's default is far more, the rest waits in TCP."""
UNANSWERED_BYTES_MAX: Final = 64 * 1024 * 1024
UNSENT_BYTES_MAX: Final = 128 * 1024 * 1024
"""With more unread answers than this, a client is not a slow reader but a broken one."""
ANSWERS_AHEAD_BYTES: Final = 1024 * 1024
"""While a client has more unread answers than this, no further requests of it are read."""
HANDSHAKE_S: Final = 10.0
FIRST_REQUEST_S: Final = 30.0
"""A connection without a request for this long is closed."""
UNPROVED_FRAMES: Final = FrameLimits(
    default=UNPROVED_BYTES_MAX, buffer_min=20 * KIB, buffer_max=20 * KIB
)
"""Until a client of a SASL listener has proved who it is: all of its frames fit into the buffer."""
NOT_SEEN: Final = -1
HELD_PROGRESS_BYTES: Final = 64 * 1024
"""While others wait for memory, a client that holds some must send this much each second."""
SENT_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""What a client's socket may contain that has not reached us: Linux lets it grow to this."""
REQUEST_NOT_FINISHED_S: Final = 30.0
"""A request that comes slowly goes on as long as HELD_PROGRESS_BYTES of it come in each such time:
10 MB over a link of 1 Mbit/s take 80 s."""
ANSWER_NOT_READ_S: Final = 60.0
"""A client that reads nothing of its answers for this long is closed: they use our memory."""
REFUSALS_LOGGED_EVERY_S: Final = 1.0


@attrs.frozen(kw_only=True)
class ClientLimits:
    connections_max: int
    connections_per_ip_max: int
    connections_per_ip_per_s: int = 500
    pending_bytes_per_node: int
    answer_bytes_per_node: int = 1 << 40
    idle_ns: int
    authenticate_ns: int = 30_000_000_000
    """From the connection to the proved principal, where there is SASL."""
    frames: FrameLimits
