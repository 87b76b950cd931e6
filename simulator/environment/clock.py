"""A node's two clocks as functions of true time (docs/protocol.md, "Model").

The wall clock is off by an offset that may step and drift, or it stands still. The boot clock never
steps, has a rate of its own, and starts at zero after a power cut.
"""

from typing import Final

from paxos.ids import Now

EPOCH_NS: Final = 1_700_000_000_000_000_000
_MILLION: Final = 1_000_000
STOPPED_PPM: Final = -_MILLION
"""The drift at which the wall clock stands still."""


class Clock:
    def __init__(self, *, boot_ppm: int = 0) -> None:
        self.offset_ns = 0
        self._trusted = True
        self._drift_ppm = 0
        self._since_ns = 0
        self._boot_ppm = boot_ppm
        self._boot_base_ns = 0
        self._read_at = -1
        self._read = Now(0, 0, True)

    def wall_offset(self, true_ns: int) -> int:
        return self.offset_ns + (true_ns - self._since_ns) * self._drift_ppm // _MILLION

    def read(self, true_ns: int) -> Now:
        if true_ns != self._read_at:
            self._read_at = true_ns
            wall_ns = EPOCH_NS + true_ns + self.offset_ns
            if self._drift_ppm:
                wall_ns += (true_ns - self._since_ns) * self._drift_ppm // _MILLION
            boot_ns = true_ns + true_ns * self._boot_ppm // _MILLION - self._boot_base_ns
            self._read = Now(wall_ns, boot_ns, self._trusted)
        return self._read

    def boot_ns(self, true_ns: int) -> int:
        return true_ns + true_ns * self._boot_ppm // _MILLION - self._boot_base_ns

    @property
    def trusted(self) -> bool:
        """Whether the node believes that its wall clock is within the bound."""
        return self._trusted

    @trusted.setter
    def trusted(self, trusted: bool) -> None:
        self._trusted = trusted
        self._read_at = -1

    def step(self, true_ns: int, offset_ns: int, drift_ppm: int = 0) -> None:
        """From now on the wall clock is off by `offset_ns`, and drifts."""
        self.offset_ns, self._drift_ppm, self._since_ns = offset_ns, drift_ppm, true_ns
        self._read_at = -1

    def stand_still(self, true_ns: int, ns: int) -> None:
        """Neither clock advances for `ns`; nobody reads them in that time."""
        self.step(true_ns, self.offset_ns - ns)
        self._boot_base_ns += ns

    def reboot(self, true_ns: int) -> None:
        self._boot_base_ns = true_ns + true_ns * self._boot_ppm // _MILLION
        self._read_at = -1
