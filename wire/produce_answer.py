"""The commonest response, packed by one `struct` call: one topic, one partition, no error text.

librdkafka puts one partition into each Produce request, so on a busy node this frame is written
more often than any other. The generic way (three objects, then the generated encoder) costs about
five times as much. Versions and fields are those of `wire.messages.produce`; a test holds both ways
to the same bytes. Anything richer (errors with text, KIP-951 hints, several partitions, long names)
takes the generic way: `one_partition` returns None for what it cannot say.
"""

import struct
from typing import Final

from wire.apis import RequestHeader

TOPIC_NAME_BYTES_MAX: Final = 125
"""Its compact length is one byte; Kafka allows 249 characters, which go the generic way."""
NO_TIME: Final = -1

# length, correlation id, [tags,] topics, name length, name, partitions, index, error, base offset,
# append time, [log start (5+),] [no record errors, null message (8+), tags (9+),] throttle time
_LEGACY_HEAD: Final = ">iii h{size}s iihqq"
_TAILS: Final = {3: "i", 4: "i", 5: "qi", 6: "qi", 7: "qi", 8: "q 4x h i"}
_FLEXIBLE: Final = ">iix BB{size}s BihqqqB 3x i x"

_structs: Final[dict[tuple[int, int], struct.Struct]] = {}
"""By version and name length: at most 8 x 126."""


def one_partition(
    header: RequestHeader,
    topic: str,
    index: int,
    error_code: int,
    base_offset: int,
    log_start_offset: int,
) -> bytes | None:
    """The whole answer for one partition, length prefix included, or None (see above)."""
    name = topic.encode()
    size = len(name)
    version = header.api_version
    packer = _structs.get((version, size)) or _make_struct(version, size)
    if packer is None:
        return None
    length = packer.size - 4
    correlation_id = header.correlation_id
    if version >= 9:
        return packer.pack(
            length, correlation_id, 2, size + 1, name, 2,
            index, error_code, base_offset, NO_TIME, log_start_offset, 1, 0,
        )  # fmt: skip
    values = (length, correlation_id, 1, size, name, 1, index, error_code, base_offset, NO_TIME)
    if version >= 8:
        return packer.pack(*values, log_start_offset, -1, 0)
    if version >= 5:
        return packer.pack(*values, log_start_offset, 0)
    return packer.pack(*values, 0)


def _make_struct(version: int, size: int) -> struct.Struct | None:
    if size > TOPIC_NAME_BYTES_MAX:
        return None
    layout = _FLEXIBLE if version >= 9 else _LEGACY_HEAD + _TAILS[version]
    made = struct.Struct(layout.format(size=size))
    _structs[version, size] = made
    return made
