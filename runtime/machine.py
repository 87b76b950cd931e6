"""What a node gets of the machine it runs on: clocks, a disk with its threads, sockets, chance.

Nothing else of a node touches the world but HTTP and the console's pages, which are trio's.
`node.py` wires the operating system's; the simulator wires one of its own, and runs the same node
on it (docs/simulator.md).
"""

import socket
import time
import uuid
from typing import Protocol

from paxos.clocks.clock import SystemClock
from runtime.config.config import Config
from runtime.config.fields import Address
from runtime.network.dataplane import Plane, Poller, Signal, Wakeup
from runtime.network.listener import Listening, OnAccept, listen
from runtime.system.clock import LinuxClock
from runtime.system.journal import Journal
from storage.disk.files import Disk, RealDisk


class Machine(Protocol):
    clock: SystemClock

    def disk(self, config: Config) -> Disk:
        """The node's data directory, and the threads that work on it."""
        ...

    def poller(self) -> Poller | None:
        """What tells which sockets are ready; None: epoll."""
        ...

    def signal(self) -> Signal:
        """One more thing that wakes the data plane."""
        ...

    def listen(
        self, plane: Plane, address: Address, on_accept: OnAccept, journal: Journal
    ) -> Listening:
        """Accept connections to `address`.

        Raises:
            OSError: the address is not ours, or in use.
        """
        ...

    def new_id(self) -> bytes:
        """16 bytes that nobody else has."""
        ...


class LinuxMachine:
    """This one; `clock` may be another than its own."""

    def __init__(self, clock: SystemClock | None = None) -> None:
        self.clock: SystemClock = clock or LinuxClock()

    def disk(self, config: Config) -> Disk:
        return RealDisk(config.node.data_dir, config.storage.data_bytes_max, time.monotonic)

    def poller(self) -> Poller | None:
        return None

    def signal(self) -> Signal:
        return Wakeup()

    def listen(
        self, plane: Plane, address: Address, on_accept: OnAccept, journal: Journal
    ) -> Listening:
        return listen(plane, address, on_accept, socket.SOMAXCONN, journal)

    def new_id(self) -> bytes:
        return uuid.uuid4().bytes
