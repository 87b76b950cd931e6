"""A node's two clocks as functions of true time (protocol.md section 1, "Clock bound").

The wall clock is off by an offset that may step, and drifts; the boot clock never steps, has a rate
of its own, and starts anew at a power cut.
"""

from typing import Final

from paxos.ids import Now

EPOCH_NS: Final = 1_700_000_000_000_000_000
DRIFT_PPM_MAX: Final = 200
_MILLION: Final = 1_000_000


class Clock:
    def __init__(self, *, boot_ppm: int = 0) -> None:
        self.offset_ns = 0
        self.trusted = True
        self._drift_ppm = 0
        self._since_ns = 0
        self._boot_ppm = boot_ppm
        self._boot_base_ns = 0

    def wall_offset(self, true_ns: int) -> int:
        return self.offset_ns + (true_ns - self._since_ns) * self._drift_ppm // _MILLION

    def read(self, true_ns: int) -> Now:
        boot_ns = true_ns + true_ns * self._boot_ppm // _MILLION - self._boot_base_ns
        return Now(EPOCH_NS + true_ns + self.wall_offset(true_ns), boot_ns, self.trusted)

    def step(self, true_ns: int, offset_ns: int, drift_ppm: int = 0) -> None:
        """From now on the wall clock is off by `offset_ns`, and drifts."""
        self.offset_ns, self._drift_ppm, self._since_ns = offset_ns, drift_ppm, true_ns

    def reboot(self, true_ns: int) -> None:
        self._boot_base_ns = true_ns + true_ns * self._boot_ppm // _MILLION
