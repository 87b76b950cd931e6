"""What a program is asked, and what it tells: a JSON line for each event (compat/languages.py)."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping

Asked = argparse.Namespace
UNTIL_S = 20.0


def options() -> Asked:
    parser = argparse.ArgumentParser()
    for name in ("do", "bootstrap", "topic", "group", "instance", "assignor"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--idempotent", default="false")
    for name, value in (("count", 0), ("rate", 100), ("seconds", 30), ("at", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    asked.idempotent = asked.idempotent == "true"
    asked.until = time.monotonic() + asked.seconds
    return asked


def values(asked: Asked) -> Iterator[bytes | None]:
    """So many, or so many a second until the time is over; None is a moment without one."""
    if asked.count:
        yield from (b"%06d" % number for number in range(asked.count))
        return
    began, number = time.monotonic(), 0
    while (now := time.monotonic()) < asked.until:
        if number <= (now - began) * asked.rate:
            yield b"%06d" % number
            number += 1
        else:
            yield None


def tell(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "at": int(time.time() * 1_000), **fields}), flush=True)


def acked(value: bytes, partition: int, offset: int) -> None:
    tell("acked", value=value.decode(), partition=partition, offset=offset)


def read(value: bytes, partition: int, offset: int) -> None:
    tell("read", value=value.decode(), partition=partition, offset=offset)


def failed(error: object) -> None:
    tell("error", text=repr(error))


def until(true: Callable[[], bool]) -> None:
    """Any node answers, and may be a moment behind the one that made the change."""
    deadline = time.monotonic() + UNTIL_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come true")
        time.sleep(0.05)


def main(programs: Mapping[str, Callable[[Asked], None]]) -> None:
    asked = options()
    if asked.do not in programs:
        sys.exit(f"this client has no {asked.do}")
    programs[asked.do](asked)
    tell("done")
