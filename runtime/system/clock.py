"""The clocks of Linux, and the node's clock (paxos.clocks.clock) that uses them."""

import time

from paxos.clocks import clock
from paxos.clocks.clock import SystemClock


class LinuxClock:
    """CLOCK_REALTIME, and CLOCK_BOOTTIME, which continues while the machine is suspended."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Clock(clock.Clock):
    """A node's clock; by default it uses this machine's clocks."""

    def __init__(
        self, margin_ns: int, system: SystemClock | None = None, *, others_needed: int = 0
    ) -> None:
        super().__init__(margin_ns, system or LinuxClock(), others_needed=others_needed)
