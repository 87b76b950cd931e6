"""What a member does not take in while its disk is nearly full: as legal as losing it on the way.

Leases, promises, steals and small commands are taken, so that elections and handovers go on in the
segments that are ready, and then on the reserve (storage.space).
"""

from typing import Final

from paxos.messages import Accept, Learned, Message

ENTRY_BYTES_MAX: Final = 512
LEARNED_BYTES_MAX: Final = 64 * 1024


def is_bulk(message: Message) -> bool:
    """Whether it would cost much room on the disk."""
    if type(message) is Accept:
        return message.entry.size > ENTRY_BYTES_MAX
    if type(message) is Learned:
        return sum(entry.size for entry in message.entries) > LEARNED_BYTES_MAX
    return False
