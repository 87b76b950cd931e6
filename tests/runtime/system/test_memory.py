"""The accounting of memory, and limits that fit what the operating system gives."""

from pathlib import Path

import attrs
import pytest

from paxos.ids import NodeId
from runtime.config.config import Address, Config
from runtime.config.memory_limits import fitted
from runtime.config.sections import ListenSection, NodeSection
from runtime.system.memory import ClientRoom, Memory, memory_limit
from wire.framing import BUFFER_BYTES_MIN, FrameAssembler, FrameLimits

MIB = 1024 * 1024


def config() -> Config:
    where = Address("127.0.0.1", 1)
    return Config(
        node=NodeSection(id=NodeId(1), cluster_id="c", data_dir=Path("/data")),
        listen=ListenSection(
            kafka=where, peer=Address("127.0.0.1", 2), http=Address("127.0.0.1", 3)
        ),
        peers={NodeId(1): Address("127.0.0.1", 2)},
    )


def test_one_thing_may_always_be_there() -> None:
    """A limit below the size of one request must not shut it out for ever."""
    memory = Memory(100, 100)
    room = ClientRoom(memory)
    assert room.begin(1_000)
    assert not room.begin(1)
    room.end(1_000)
    assert room.begin(1)


def test_an_answer_leaves_room_for_the_next() -> None:
    memory = Memory(100, 100)
    assert memory.answer_room == 25
    memory.answers = 100
    assert memory.answer_room == 0


@pytest.mark.parametrize("mib", [256, 512, 1024])
def test_a_node_of_little_memory_takes_less_in(mib: int) -> None:
    """All that it may hold at once fits beside what the node needs for itself."""
    one = config()
    limits = fitted(one, mib * MIB).limits
    held = limits.pending_bytes_per_node + limits.answer_bytes_per_node + limits.tail_bytes
    assert held + 2 * limits.peer_queue_bytes < (mib - 112) * MIB
    assert limits.pending_bytes_per_node >= limits.frame_bytes_max
    assert limits.pending_bytes_per_node <= one.limits.pending_bytes_per_node


@pytest.mark.parametrize("name", ["answer_bytes_per_node", "peer_queue_bytes", "tail_bytes"])
def test_each_limit_is_fitted_by_itself(name: str) -> None:
    """A small limit for requests does not leave a large one for something else as it is."""
    one = config()
    small = attrs.evolve(one.limits, pending_bytes_per_node=32 * MIB, **{name: 1 << 40})
    limits = fitted(attrs.evolve(one, limits=small), 1024 * MIB).limits
    assert getattr(limits, name) <= 1024 * MIB // 8
    assert limits.pending_bytes_per_node == 32 * MIB


def test_enough_memory_changes_nothing() -> None:
    one = config()
    assert fitted(one, 0) is one
    assert fitted(one, 64 * 1024 * MIB) is one
    small = attrs.evolve(one.limits, pending_bytes_per_node=64 * MIB)
    assert fitted(attrs.evolve(one, limits=small), 64 * 1024 * MIB).limits == small


@pytest.mark.parametrize(
    ("own", "file", "text", "limit"),
    [
        ("0::/a/b\n", "a/memory.max", "1000\n", 1000),
        ("0::/a/b\n", "a/b/memory.max", "max\n", 0),
        ("5:memory:/a\n3:cpu,cpuacct:/\n", "memory/a/memory.limit_in_bytes", "2000\n", 2000),
        ("5:memory:/a\n", "memory/memory.limit_in_bytes", str(2**63 - 4096), 0),
    ],
)
def test_the_limit_of_the_control_group_is_found(
    tmp_path: Path, own: str, file: str, text: str, limit: int
) -> None:
    """Of either version, and also that of an enclosing group."""
    (tmp_path / "own").write_text(own)
    place = tmp_path / "cgroup" / file
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert memory_limit(tmp_path / "cgroup", tmp_path / "own") == limit


def test_buffers_of_many_connections_are_all_counted_and_all_returned() -> None:
    """Every connection gets its first buffer, even while no buffer may grow: what is returned must
    have been counted, or the sum falls below zero and limits nothing any more."""
    memory = Memory(2 * BUFFER_BYTES_MIN, 0)
    limits = FrameLimits(default=1_000)
    many = [FrameAssembler(limits, ClientRoom(memory)) for _ in range(3)]
    assert memory.buffers == 3 * BUFFER_BYTES_MIN
    for one in many:
        one.drop()
    assert memory.buffers == 0
