r"""Simulated machines: network namespaces around a switch, each behind a link of its own.

    clients --- switch --- machine 1      a veth pair each; the clients' is as fast as the kernel
                  |  \---- machine 2
                  \------- machine 3

A process inside a machine shares cores and disk with all others, but nothing of the network: what
it sends leaves through its machine's link, and what it receives comes through it. `limit` sets the
rate of each machine's link, for each direction separately (full duplex, like an Ethernet port): one
token bucket (tc-tbf(8)) where the machine sends, and one where the switch sends to the machine.

The namespaces have no names. The descriptors of this program and the processes inside keep them;
the kernel removes them, with everything inside, when the last of those is gone. So nothing is left
behind however this program ends, SIGKILL included, and nothing needs to be removed before the next
run. To look inside: `nsenter --target PID --net`, with a node's PID.

Setting up needs CAP_SYS_ADMIN and CAP_NET_ADMIN: root's, or those of a user namespace (`unshare
--map-root-user --net COMMAND`, if the system lets users create them).
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import attrs

from benchmarks.machines.inside import enter, leave_for_a_new_one

TOOLS: Final = ("ip", "tc")
TOOL_S_MAX: Final = 20.0
MACHINES_MAX: Final = 32
SUBNET: Final = "10.64.0."
"""In namespaces of our own, so it conflicts with no network of this machine."""
CLIENTS: Final = 254
DEVICE: Final = "eth0"
BRIDGE: Final = "br0"
BURST_BYTES: Final = 128 * 1024
"""More than the largest packet before segmentation (64 KiB and headers), which the token bucket
would cut into frames on this machine's CPU."""
QUEUE_S: Final = 0.16
"""The longest that data may wait for its turn; what comes then is lost, as in a switch, and TCP
slows down. A deeper queue on a slow link would only delay all data, leases and heartbeats too."""


class MachinesError(RuntimeError):
    """Machines cannot be set up here; the message says why and what to do."""


@attrs.frozen
class Namespace:
    name: str
    """In messages only."""
    descriptor: int

    @property
    def path(self) -> str:
        """Its path for another process, while this one lives."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is inside meanwhile. Not across an `await`: others would be too."""
        with _open_here() as home:
            enter(self.descriptor)
            try:
                yield
            finally:
                enter(home)

    def run(self, tool: str, lines: Sequence[str]) -> None:
        """Have `ip` or `tc` run these commands inside.

        Raises:
            MachinesError: with its message, if it fails.
        """
        command = [tool, "-batch", "-"]
        try:
            with self.entered():
                done = subprocess.run(
                    command,
                    input="".join(f"{line}\n" for line in lines),
                    capture_output=True,
                    text=True,
                    timeout=TOOL_S_MAX,
                    check=False,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise MachinesError(f"cannot run {tool}: {error}") from error
        if done.returncode != 0:
            raise MachinesError(f"{tool}, in {self.name}: {done.stderr.strip()}")


@attrs.define
class Network:
    """The machines' links, and the namespaces of machines, clients and switch."""

    machines: tuple[Namespace, ...]
    clients: Namespace
    switch: Namespace
    _limited: tuple[int, bool] = (0, True)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{SUBNET}{number}" for number in self._numbers())

    def limit(self, bits_per_s: int, *, both_ways: bool = True) -> None:
        """Limit what each machine sends from now on, 0 for no limit; if `both_ways`, also what it
        receives.

        Raises:
            MachinesError: if the kernel has no token bucket.
        """
        before, before_both_ways = self._limited
        if (bits_per_s, both_ways) == self._limited or not bits_per_s | before:
            return
        receives = bits_per_s if both_ways else 0
        received = before if before_both_ways else 0
        for number, machine in zip(self._numbers(), self.machines, strict=True):
            machine.run("tc", [_queue(DEVICE, bits_per_s)])
            if receives or received:
                self.switch.run("tc", [_queue(f"port{number}", receives)])
        self._limited = bits_per_s, both_ways

    def cut(self, sender: int, receiver: int) -> None:
        """Drop everything that one machine sends to the other; neither notices. The clients' number
        is CLIENTS."""
        self._place(sender).run("ip", [f"route add blackhole {SUBNET}{receiver}"])

    def heal(self, sender: int, receiver: int) -> None:
        self._place(sender).run("ip", [f"route delete blackhole {SUBNET}{receiver}"])

    def _place(self, number: int) -> Namespace:
        return self.clients if number == CLIENTS else self.machines[number - 1]

    def _numbers(self) -> range:
        return range(1, len(self.machines) + 1)

    def _connect(self) -> None:
        self.switch.run("ip", [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"])
        links = dict(zip(self._numbers(), self.machines, strict=True))
        for number, namespace in {**links, CLIENTS: self.clients}.items():
            namespace.run(
                "ip",
                [
                    f"link add {DEVICE} type veth peer name port{number} netns {self.switch.path}",
                    f"address add {SUBNET}{number}/24 dev {DEVICE}",
                    f"link set {DEVICE} up",
                    "link set lo up",
                ],
            )
            self.switch.run("ip", [f"link set port{number} master {BRIDGE} up"])


def _queue(device: str, bits_per_s: int) -> str:
    if not bits_per_s:
        return f"qdisc delete dev {device} root"
    queue_bytes = max(BURST_BYTES, round(bits_per_s / 8 * QUEUE_S))
    return (
        f"qdisc replace dev {device} root "
        f"tbf rate {bits_per_s}bit burst {BURST_BYTES} limit {queue_bytes}"
    )


@contextmanager
def network(machines: int) -> Iterator[Network]:
    """This many machines with unlimited links; the calling thread stays where it is.

    Raises:
        MachinesError: if this system does not allow it.
    """
    assert 0 < machines <= MACHINES_MAX
    _check_tools()
    with ExitStack() as kept:
        names = [*(f"machine {number}" for number in range(1, machines + 1)), "clients", "switch"]
        *nodes, clients, switch = [kept.enter_context(_new(name)) for name in names]
        made = Network(tuple(nodes), clients, switch)
        made._connect()
        yield made


def why_not() -> str:
    """Why machines cannot be set up here; empty if they can."""
    try:
        with network(1) as tried:
            tried.limit(1_000_000)
    except MachinesError as error:
        return str(error)
    return ""


def _check_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise MachinesError(
            f"{' and '.join(missing)} not found: install iproute2 (and have /usr/sbin in PATH)"
        )


@contextmanager
def _new(name: str) -> Iterator[Namespace]:
    with _open_here() as home:
        try:
            leave_for_a_new_one()
        except OSError as error:
            raise MachinesError(
                f"network namespaces need root ({error}); if users may create user namespaces: "
                "unshare --map-root-user --net COMMAND"
            ) from error
        with _open_here() as descriptor:
            enter(home)
            yield Namespace(name, descriptor)


@contextmanager
def _open_here() -> Iterator[int]:
    """The network namespace that this thread is in."""
    descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
