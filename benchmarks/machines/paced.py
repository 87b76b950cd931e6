"""A client that sends at an even pace: `paced.py BOOTSTRAP TOPIC RATE SECONDS BYTES`; it prints how
many messages it has sent, and how many were acknowledged."""

import sys
from collections import deque

import trio

from evenkeel import Delivery, EvenkeelError, Producer

LOOK_S = 0.01


async def send(bootstrap: str, topic: str, rate: float, seconds: float, size: int) -> None:
    waiting: deque[Delivery] = deque()
    sent = acknowledged = 0
    payload = b"x" * size
    async with Producer(bootstrap) as producer:
        began = trio.current_time()
        while trio.current_time() < began + seconds:
            while sent < (trio.current_time() - began) * rate:
                waiting.append(await producer.send(topic, payload, key=b"%d" % sent))
                sent += 1
            await trio.sleep(LOOK_S)
        for delivery in waiting:
            try:
                await delivery
            except EvenkeelError as error:
                sys.stderr.write(f"{error}\n")
            else:
                acknowledged += 1
    sys.stdout.write(f"{sent} {acknowledged}\n")


if __name__ == "__main__":
    rate, seconds, size = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    trio.run(send, sys.argv[1], sys.argv[2], rate, seconds, size)
