"""The topics a member subscribes to, read from the metadata of Kafka's "consumer" protocol.

Everything else in it is the members' own affair. The coordinator needs the topics to refuse the
deletion of offsets in use, and to see whether a restarted static member asks for more.
"""

import struct
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version; None if it is not one."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            return None
        at = _HEAD.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if length < 0 or at + length > len(metadata):
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
