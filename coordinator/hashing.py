"""Which Paxos group a consumer group belongs to."""

import zlib


def hash_consumer_group(name: str, groups_count: int) -> int:
    """The index, 0 to `groups_count` - 1, of the Paxos group whose log holds consumer group `name`.

    CRC-32 of the UTF-8 name. Unlike `hash()` it is the same in every process and every release: one
    node directs clients to the coordinator, another looks up the committed offsets.
    """
    assert groups_count > 0
    return zlib.crc32(name.encode()) % groups_count
