"""What takes up the space in a node's directory, by the names and sizes of its files."""

import attrs

from storage.checkpoints import SUFFIX as CHECKPOINT_SUFFIX
from storage.cold.format import parse_cold_name
from storage.disk.files import Disk
from storage.disk.space import RESERVE_NAME
from storage.format import segment_number


@attrs.frozen(kw_only=True)
class Usage:
    """In bytes."""

    log: int
    """Segments of the log: in use, ready, or waiting to be used again."""
    log_segments: int
    checkpoints: int
    cold: dict[int, int]
    """By partition."""
    reserve: int
    other: int
    free: int

    @property
    def cold_sum(self) -> int:
        return sum(self.cold.values())

    @property
    def held(self) -> int:
        return self.log + self.checkpoints + self.cold_sum + self.reserve + self.other


def usage(disk: Disk) -> Usage:
    log = segments = checkpoints = reserve = other = 0
    cold: dict[int, int] = {}
    for name, size in disk.sizes().items():
        partition = parse_cold_name(name)
        if partition is not None:
            cold[partition[0]] = cold.get(partition[0], 0) + size
        elif segment_number(name) is not None:
            log += size
            segments += 1
        elif name.endswith(CHECKPOINT_SUFFIX):
            checkpoints += size
        elif name == RESERVE_NAME:
            reserve += size
        else:
            other += size
    return Usage(
        log=log,
        log_segments=segments,
        checkpoints=checkpoints,
        cold=cold,
        reserve=reserve,
        other=other,
        free=disk.free_bytes(),
    )
