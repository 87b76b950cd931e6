"""No pipeline of one connection holds the loop for long, for any API: measured like single requests
(test_stretches), over a socket, through the code that reads and answers connections.

A stretch is here what one round of the data plane does for this connection: what it reads of the
pipeline and serves, and the answers that leave. Small requests are the more dangerous kind: many of
them are read at once. `EXAM=full` has longer pipelines, and larger requests as well.
"""

import os
import socket

import pytest

from paxos.ids import MS
from runtime.clients.clients import Clients
from runtime.clients.limits import ClientLimits
from tests.broker.hostile_list import DEAR_APIS, Dear, dear_requests
from tests.broker.requests.test_stretches import STRETCH_MS_MAX, TRIES, Measured, slowness
from tests.broker.requests.test_stretches import (
    _collects_as_a_node as _collects_as_a_node,  # a fixture
)
from tests.doses import some
from tests.runtime.doubles import FakePlane, FakeSystemClock, Recorder, Tcp, frame
from wire.framing import FrameLimits

MIB = 1024 * 1024
FULL = os.environ.get("EXAM") == "full"
PIPELINE_BYTES = MIB if FULL else MIB // 16
SIZES = (1024, 16 * 1024) if FULL else (1024,)
"""Bytes of one request. A large one is read alone, and its cost is measured elsewhere."""


class Pipeline(Measured):
    """A connection to the measured node, on which requests come without a pause."""

    def __init__(self) -> None:
        super().__init__()
        self.plane, self.recorder = FakePlane(), Recorder()
        self.clients = Clients(
            self.plane,
            self.world[1].api.handle_frame,
            ClientLimits(
                connections_max=10,
                connections_per_ip_max=10,
                pending_bytes_per_node=1000 * MIB,
                idle_ns=600_000 * MS,
                frames=FrameLimits(default=32 * MIB),
            ),
            self.recorder.journal,
            FakeSystemClock().boot_ns,
        )

    def longest_ms_of(self, dear: Dear) -> float:
        self.stretches.longest_ms = 0.0
        count = max(2, PIPELINE_BYTES // len(dear.frame))
        tcp = Tcp()
        accepted, client = tcp.pair()
        client.setblocking(False)
        self.clients.accept(accepted, "10.0.0.1")
        left = memoryview(frame(dear.frame) * count)
        asked = len(left)
        with self.stretches.with_collections():
            for _ in range(100_000):
                left = left[_sent(client, left) :]
                self.stretches.measured(self._round)
                while self.background.done:
                    self.background.done.pop(0)()
                self.world.cluster.settle()
                self.world.cluster.advance(1, step_ms=1)
                if self.answered(client) and not left:
                    break
        assert not self.world[1].bugs, (dear.name, self.world[1].bugs)
        assert not left, f"{dear.name}: {len(left)} of {asked} bytes were never read"
        self.clients.close_all("the test is over")
        tcp.close()
        return self.stretches.longest_ms

    def _round(self) -> None:
        self.plane.round()
        self.clients.flush()

    def answered(self, client: socket.socket) -> bool:
        """Whether nothing is under way any more; the answers are thrown away."""
        try:
            while client.recv(MIB):
                pass
        except OSError:
            pass  # nothing there, or closed
        return not any(one.queue for one in self.clients.connections) and not self.plane.ready()


def _sent(client: socket.socket, left: memoryview) -> int:
    if not left:
        return 0
    try:
        return client.send(left)
    except BlockingIOError:
        return 0
    except OSError:
        return len(left)  # the node has closed the connection


@pytest.mark.parametrize("api", some(DEAR_APIS))
def test_no_pipeline_holds_the_loop(api: str) -> None:
    for size in SIZES:
        for dear in dear_requests(api, size):
            longest, tries, allowed = Pipeline().longest_ms_of(dear), 1, STRETCH_MS_MAX * slowness()
            while longest > allowed and tries < TRIES:
                longest, tries = min(longest, Pipeline().longest_ms_of(dear)), tries + 1
            assert longest <= max(allowed, STRETCH_MS_MAX * slowness()), dear.name
