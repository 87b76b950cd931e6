"""Rows R7 and R8: all shapes of networks between nodes, and between nodes and clients.

`python -m tests.exam.network.shapes DIRECTORY NODES SECONDS SHAPE...`: each shape lasts that long,
under a load, while every node is asked directly and a client of ours notes its errors. The last
line has the observations, as JSON. At the end everything is read and judged.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.machines.network import CLIENTS, Network, network
from cluster import health, workload
from cluster.recorder import Recorder
from cluster.status import ClusterView
from cluster.workload import SteadyProducer
from evenkeel import EvenkeelError
from evenkeel import Producer as OurProducer
from evenkeel.config import ClientConfig, ProducerConfig
from tests.cluster.scenery import (
    PARTITIONS,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
)
from tests.exam.network.apart import Apart, Watcher, apart, is_master, placed
from tests.exam.prober import Prober

Cuts = tuple[tuple[int, int], ...]
RATE: Final = 200
A_FEW: Final = 3
OTHER_TOPIC: Final = "asked"
GIVES_UP_MS: Final = 2_000


@attrs.frozen
class Shape:
    cuts: Cuts
    """(sender, receiver) pairs whose frames are lost."""
    masters_on: int | None = None
    """The node that has all masters at first; None: even."""
    lost: tuple[int, ...] = ()
    """Nodes without a majority."""
    reached: bool = True
    """Whether clients can reach the masters, or the nodes that can become masters."""


def apart_from(one: set[int], other: set[int]) -> Cuts:
    """Neither side hears the other."""
    return tuple(
        (a, b) for a, b in permutations(sorted(one | other), 2) if (a in one) != (b in one)
    )


def silent_for_clients(*nodes: int) -> Cuts:
    """No packet of these nodes reaches a client: it gets neither a connection nor a refusal."""
    return tuple((node, CLIENTS) for node in nodes)


RING: Final[Cuts] = tuple(
    (a, b) for a, b in permutations(range(1, 6), 2) if (a - b) % 5 not in (1, 4)
)
OF_THREE: Final[Mapping[str, Shape]] = {
    "in": Shape(((2, 1), (3, 1)), masters_on=1, lost=(1,)),
    "out": Shape(((1, 2), (1, 3)), masters_on=1, lost=(1,)),
    "bridge": Shape(apart_from({2}, {3})),
    "clients away": Shape(silent_for_clients(1), masters_on=1, reached=False),
    "clients at the master": Shape(silent_for_clients(2, 3), masters_on=1),
    "clients elsewhere": Shape(silent_for_clients(1, 3), masters_on=1, reached=False),
}
OF_FIVE: Final[Mapping[str, Shape]] = {
    "majority": Shape(apart_from({1, 2, 3}, {4, 5}), masters_on=4, lost=(4, 5)),
    "ring": Shape(RING),
    "bridge of five": Shape(apart_from({1, 2}, {4, 5})),
}
SHAPES: Final = {**OF_THREE, **OF_FIVE}


@attrs.define
class Asking:
    """A producer of ours that gives up soon, and the errors it got."""

    bootstrap: str
    told: Counter[str] = attrs.Factory(Counter)
    for_ever: list[str] = attrs.Factory(list)
    """Errors that are not retriable."""

    async def run(self) -> None:
        """Until cancelled."""
        config = ProducerConfig(delivery_timeout_ms=GIVES_UP_MS, send_timeout_ms=GIVES_UP_MS)
        client = ClientConfig(
            request_timeout_ms=GIVES_UP_MS // 2, connect_timeout_ms=GIVES_UP_MS // 4
        )
        async with OurProducer(self.bootstrap, config, client=client) as producer:
            while True:
                try:
                    await (await producer.send(OTHER_TOPIC, b"?", partition=0))
                    self.told["acknowledged"] += 1
                except EvenkeelError as error:
                    self.told[type(error).__name__] += 1
                    if not error.retriable:
                        self.for_ever.append(str(error))
                await trio.sleep(0.05)


def at_home(view: ClusterView) -> bool:
    return everything_has_a_master(view) and view.all_at_ideal


@attrs.define
class Bench:
    one: Apart
    producer: SteadyProducer
    prober: Prober

    async def placed(self, shape: Shape) -> None:
        cluster = self.one.cluster
        on = shape.masters_on
        if on is None:
            await placed(cluster, {"even": True}, at_home)
        else:
            await placed(cluster, {"all_on": on}, is_master(on))
        await acknowledged(self.producer, A_FEW)

    async def seen(self, name: str, seconds: float) -> dict[str, Any]:
        shape = SHAPES[name]
        await self.placed(shape)
        asking, watcher = Asking(self.one.cluster.spec.bootstrap), Watcher(self.one.cluster)
        before = [len(acks) for acks in self.producer.acks_ns]
        for cut in shape.cuts:
            self.one.net.cut(*cut)
        began_ns = time.monotonic_ns()
        try:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watcher.run)
                    nursery.start_soon(asking.run)
            lost = [await self.state_of(node) for node in shape.lost]
        finally:
            ended_ns = time.monotonic_ns()
            for cut in shape.cuts:
                self.one.net.heal(*cut)
        counts = [len(acks) for acks in self.producer.acks_ns]
        gaps = [self.producer.longest_gap_ms(k, began_ns, ended_ns) for k in range(PARTITIONS)]
        prepares = self.one.prepares(began_ns, ended_ns)
        await acknowledged(self.producer, A_FEW)
        return {
            "shape": name,
            "reached": shape.reached,
            "acks": [b - a for a, b in zip(before, counts, strict=True)],
            "gap_ms": round(max(gaps)),
            "prepares_per_s": round(max(prepares.values(), default=0) / seconds, 2),
            "prepares": sum(prepares.values()),
            "changes": max(watcher.changes.values(), default=0),
            "lost": lost,
            "told": dict(asking.told),
            "for_ever": asking.for_ever[:5],
            "back_s": round((time.monotonic_ns() - ended_ns) / 1e9, 1),
        }

    async def state_of(self, node: int) -> dict[str, Any]:
        """A node without a majority: it is master of nothing, and has redirected its clients."""
        address = self.one.cluster.spec.node(node).http
        status = await health.call_async(address, "GET", "/status")
        acting = sum(one["acting"] for one in status["groups"])
        return {"node": node, "acting": acting, "clients": status["clients"]}


async def main(
    directory: Path, seconds: float, names: list[str], net: Network
) -> list[dict[str, Any]]:
    found = []
    async with apart(net, directory) as one:
        spec = one.cluster.spec
        create = lambda: workload.create_topic(  # noqa: E731
            spec.bootstrap, OTHER_TOPIC, partitions=1, replication=len(spec.nodes)
        )
        await in_thread(create)
        with Recorder(spec.data_dir / "history-probes.jsonl") as recorder:
            prober = Prober(spec, TOPIC, PARTITIONS, recorder)
            async with load(one.cluster, "p", rate=RATE) as producer, trio.open_nursery() as asks:
                asks.start_soon(prober.run)
                bench = Bench(one, producer, prober)
                for name in names:
                    found.append(await bench.seen(name, seconds))
                    sys.stderr.write(f"{found[-1]}\n")
                asks.cancel_scope.cancel()
        await judge(one.cluster, producer)
    return found


if __name__ == "__main__":
    where, count, lasts, *what = sys.argv[1:]
    with network(int(count)) as made, made.clients.entered():
        told = trio.run(main, Path(where), float(lasts), what, made)
    print(json.dumps(told))  # noqa: T201 (a program)
