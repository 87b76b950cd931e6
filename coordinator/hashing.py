"""Which Paxos group a consumer group belongs to."""

import zlib


def hash_consumer_group(name: str, groups_count: int) -> int:
    """The index, 0 to `groups_count` - 1, of the group whose log holds consumer group `name`.

    CRC-32 of the UTF-8 name: the same in every process and every release, unlike `hash()`, since
    clients are sent to the coordinator by one node and committed offsets are looked for by another.
    """
    assert groups_count > 0
    return zlib.crc32(name.encode()) % groups_count
