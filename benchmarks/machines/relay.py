"""How a program outside a machine reaches what listens on that machine's loopback.

A node serves status and administration on loopback only, and each namespace has a loopback of its
own. So for every such port there is one here with the same number, which relays its connections
through a socket that was made inside the machine. They do not use the machine's link: asking a node
for its status takes nothing from what is measured.
"""

import socket
from typing import Final

import attrs
import trio

from benchmarks.machines.network import Namespace
from runtime.config.fields import Address

CONNECTIONS_MAX: Final = 64


@attrs.frozen
class Relay:
    """One port of one machine."""

    address: Address
    """The same on both sides."""
    machine: Namespace

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Relay until cancelled."""
        limit = trio.CapacityLimiter(CONNECTIONS_MAX)

        async def handle(stream: trio.SocketStream) -> None:
            async with limit:
                await self._relay(stream)

        listeners = await trio.open_tcp_listeners(self.address.port, host=self.address.host)
        task_status.started()
        await trio.serve_listeners(handle, listeners)

    async def _relay(self, near: trio.SocketStream) -> None:
        with self.machine.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        far_socket = trio.socket.from_stdlib_socket(made)
        try:
            await far_socket.connect(self.address)
        except OSError:
            far_socket.close()  # `near` closes too: its owner sees that nothing listens
            return
        far = trio.SocketStream(far_socket)
        async with far, trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, near, far)
            nursery.start_soon(_pass_on, far, near)


async def _pass_on(source: trio.SocketStream, target: trio.SocketStream) -> None:
    """Pass on all data, and then the end of it."""
    try:
        async for data in source:
            await target.send_all(data)
        await target.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        await target.aclose()  # the other direction ends with it
