"""Node processes of a cluster, each inside a machine (network.py)."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from benchmarks.machines import inside
from benchmarks.machines.network import Network
from benchmarks.machines.relay import Relay
from cluster.launcher import Command, node_command
from cluster.spec import ClusterSpec


@asynccontextmanager
async def on_machines(network: Network, spec: ClusterSpec) -> AsyncIterator[Command]:
    """The command that a launcher runs for each node; meanwhile their HTTP ports can be reached
    from here.

    Use it from the machines' clients: the nodes cannot be reached from elsewhere.
    """
    machines = dict(zip((node.id for node in spec.nodes), network.machines, strict=False))

    def command(spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
        machine = machines[node_id].path
        start = [sys.executable, "-I", "-S", inside.__file__, machine]
        return [*start, *node_command(spec, node_id, overrides)]

    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        for node in spec.nodes:
            await nursery.start(Relay(node.http, machines[node.id]).run)
        try:
            yield command
        except Exception as error:  # noqa: BLE001 (raised below, outside the nursery's group)
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
