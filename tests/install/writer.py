"""A client on a machine of its own: writes numbers for some seconds, and prints those that were
acknowledged; then how many failed."""

import sys
from collections import deque

import trio

from evenkeel import Delivery, Producer, ProducerConfig

PAUSE_S = 0.005
WAITING_MAX = 200


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def write(bootstrap: str, topic: str, first: int, seconds: float) -> None:
    waiting: deque[tuple[int, Delivery]] = deque()
    failed = 0

    async def settle(most: int) -> int:
        bad = 0
        while len(waiting) > most:
            number, delivery = waiting.popleft()
            try:
                await delivery
            except Exception as error:  # noqa: BLE001 (the test wants to know of any)
                sys.stderr.write(f"{number} failed: {error}\n")
                bad += 1
            else:
                say(f"{number}")
        return bad

    async with Producer(bootstrap, ProducerConfig()) as producer:
        until, number = trio.current_time() + seconds, first
        while trio.current_time() < until:
            waiting.append((number, await producer.send(topic, b"%d" % number, key=b"%d" % number)))
            failed += await settle(WAITING_MAX)
            number += 1
            await trio.sleep(PAUSE_S)
        failed += await settle(0)
    say(f"failed {failed}")


trio.run(write, sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
