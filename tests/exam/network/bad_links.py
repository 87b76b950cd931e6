"""Row R9: three nodes with bad links between them, and clients with good links.

`python -m tests.exam.network.bad_links DIRECTORY SECONDS RATE TREATMENT...`: each treatment lasts
that long, under a load. The last line has the observations, as JSON. At the end everything is read
and judged.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.machines.network import Network, network
from cluster.workload import SteadyProducer
from tests.cluster.scenery import acknowledged, in_thread, judge, load
from tests.exam.network.apart import Apart, Watcher, apart
from tests.exam.network.bad_switch import BadSwitch, Treatment, bad_switch

DELAY: Final = {"delay_ms": 50.0, "jitter_ms": 25.0}
TREATMENTS: Final = {
    "delay": Treatment(**DELAY),
    "loss 1": Treatment(loss_percent=1),
    "loss 5": Treatment(loss_percent=5),
    "loss 10": Treatment(loss_percent=10),
    "delay and loss 10": Treatment(**DELAY, loss_percent=10),
    "1 Mbit": Treatment(bits_per_s=1_000_000),
}
RESET: Final = "reset"
PAD_BYTES: Final = 1_000
FITS: Final = 100
"""Messages a second: 0.8 Mbit to each of the two others, over six lines of 1 Mbit."""
TOO_MANY: Final = 500
"""4 Mbit: more than the lines carry when they are slow."""
SETTINGS: Final = {"batch.size": 16_384}
"""Java's default. An entry cannot be decided before the line has carried it, and no lease is
renewed meanwhile. librdkafka's batches grow to 1 MB, which takes 8 s at 1 Mbit: four leases."""
RESET_EVERY_S: Final = 5.0
A_FEW: Final = 5
MINUTE_S: Final = 60.0


async def resets(switch: BadSwitch, met: list[int]) -> None:
    """Reset all links, again and again, until cancelled."""
    while True:
        met.append(await in_thread(switch.reset))
        await trio.sleep(RESET_EVERY_S)


async def treated(
    one: Apart, switch: BadSwitch, producer: SteadyProducer, name: str, seconds: float
) -> dict[str, Any]:
    watcher, met = Watcher(one.cluster), list[int]()
    before, began_ns = [len(acks) for acks in producer.acks_ns], time.monotonic_ns()
    switch.treat(TREATMENTS.get(name, Treatment()))
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watcher.run)
            if name == RESET:
                nursery.start_soon(resets, switch, met)
    after = [len(acks) for acks in producer.acks_ns]
    switch.treat(Treatment())
    found = {
        "treatment": name,
        "seconds": seconds,
        "changes": max(watcher.changes.values(), default=0),
        "changes_allowed": max(1, round(seconds / MINUTE_S)),
        "acks": [b - a for a, b in zip(before, after, strict=True)],
        "resets": met,
        "prepares": sum(one.prepares(began_ns, time.monotonic_ns()).values()),
    }
    sys.stderr.write(f"{found}\n")
    await acknowledged(producer, A_FEW)
    return found


async def main(
    directory: Path, seconds: float, rate: int, names: list[str], net: Network
) -> list[dict[str, Any]]:
    with bad_switch(net) as switch:
        async with apart(net, directory) as one:
            async with load(
                one.cluster, "p", rate=rate, pad_bytes=PAD_BYTES, settings=SETTINGS
            ) as producer:
                await acknowledged(producer, A_FEW)
                found = [await treated(one, switch, producer, name, seconds) for name in names]
            await judge(one.cluster, producer)
    return found


if __name__ == "__main__":
    with network(3) as made, made.clients.entered():
        where, lasts, load_of, *what = sys.argv[1:]
        told = trio.run(main, Path(where), float(lasts), int(load_of), what, made)
    print(json.dumps(told))  # noqa: T201 (a program)
