"""What an application is asked, and what it tells: a JSON line for each event."""

import argparse
import json
import sys
import threading


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("do", "bootstrap", "topic", "out", "group", "registry", "state"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=30)
    asked = parser.parse_args()
    asked.brokers = asked.bootstrap.split(",")
    return asked


def tell(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


class Countdown:
    """When an application has done enough: after so many records, or so many seconds."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.left = asked.count
        self.over = threading.Event()
        self._timer = threading.Timer(asked.seconds, self.over.set)
        self._timer.daemon = True
        self._timer.start()

    def read(self, value: str, partition: int, offset: int) -> None:
        tell("read", value=value, partition=partition, offset=offset)
        self.left -= 1
        if self.left == 0:
            self.over.set()


def done() -> None:
    tell("done")
    sys.exit(0)
