"""One whole node in this process, without sockets: everything node.py builds, and its rounds.

It is a cluster of its own (one peer: itself), so it elects, founds and registers within a moment.
The log is real, in a directory; its thread is waited for as the data plane does.
"""

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from node import Node
from paxos.clocks.clock import SystemClock
from runtime.config.config import load
from runtime.machine import LinuxMachine
from tests.runtime.doubles import Recorder

ROUNDS_MAX = 2_000
ROUND_S = 0.01
LEASE_MS = 4_000
"""Nobody else could take over, so it may be long: the machine may be busy meanwhile."""


def config_text(
    data: Path, *, groups: int = 3, peers: tuple[int, ...] = (1,), ports: int = 1
) -> str:
    return "\n".join(
        [
            "[node]",
            "id = 1",
            'cluster_id = "test"',
            f'data_dir = "{data}"',
            "[listen]",
            f'kafka = "127.0.0.1:{ports}"',
            f'peer = "127.0.0.1:{ports + 1}"',
            f'http = "127.0.0.1:{ports + 2}"',
            "[groups]",
            f"count = {groups}",
            "[storage]",
            f"segment_bytes = {4 << 20}",
            "[limits]",
            f"frame_bytes_max = {2 << 20}",
            "[lease]",
            f"duration_ms = {LEASE_MS}",
            "renew_every_ms = 300",
            "clock_margin_ms = 100",
            "[peers]",
            *(f'{peer} = "127.0.0.1:{ports + peer}"' for peer in peers),
        ]
    )


@contextmanager
def one_node(
    tmp_path: Path,
    *sets: str,
    groups: int = 3,
    peers: tuple[int, ...] = (1,),
    system: SystemClock | None = None,
) -> Iterator[Node]:
    path = tmp_path / "node.toml"
    path.write_text(config_text(tmp_path / "data", groups=groups, peers=peers))
    node = Node(load(path, {}, sets), Recorder().journal, LinuxMachine(system))
    try:
        yield node
    finally:
        node.close()
        node.plane.close()
        node.wakeup.close()


def run_until(node: Node, condition: Callable[[], object]) -> None:
    """Rounds and ticks, as fast as the log's thread works."""
    for _ in range(ROUNDS_MAX):
        if condition():
            return
        node.shell.tick()
        if select.select([node.wakeup.fd], [], [], ROUND_S)[0]:
            node.engine.on_durable()
            node.shell.end_of_round()
    raise AssertionError("it never comes true")
