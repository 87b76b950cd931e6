"""The machine that a node runs on: clocks, a disk with its threads, sockets, randomness.

The only other I/O of a node is HTTP and the console's pages, which use trio. `node.py` uses the
operating system's machine; the simulator has its own, and runs the same node on it
(docs/simulator.md).
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
        """The poller that finds ready sockets; None means epoll."""
        ...

    def signal(self) -> Signal:
        """A new signal that wakes the data plane."""
        ...

    def listen(
        self, plane: Plane, address: Address, on_accept: OnAccept, journal: Journal
    ) -> Listening:
        """Accept connections to `address`.

        Raises:
            OSError: the address is not this machine's, or is in use.
        """
        ...

    def new_id(self) -> bytes:
        """16 bytes that are globally unique."""
        ...


class LinuxMachine:
    """The real machine; `clock` may replace its clock."""

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
