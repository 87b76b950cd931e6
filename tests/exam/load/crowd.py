"""`python -m tests.exam.load.crowd PORT IDLE DRIPPING NEW_PER_S`: connections that ask for nothing.

For row X5. It opens IDLE connections from many addresses that say nothing, and DRIPPING ones that
send a request a byte a second. Every second NEW_PER_S new ones come, half of them from one address,
with the first part of a TLS hello or with nothing; connections that the node has closed are opened
again. It is a process of its own that ends when its input does. Its last line says what it has
done, as JSON.
"""

import json
import selectors
import socket
import struct
import sys
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Final

ADDRESSES: Final = 200
ONE: Final = "127.0.0.9"
"""Half of the new connections come from here, faster than its limit allows."""
TICK_S: Final = 0.05
LEFT_S: Final = 5.0
"""A new connection is given up after this time."""
FRAME: Final = struct.pack(">ihhi", 1_000, 18, 3, 1) + bytes(1_000)
HELLO: Final = bytes.fromhex("160301020001000100")
"""The first bytes of a TLS handshake."""


class Crowd:
    def __init__(self, port: int, idle: int, dripping: int, new_per_s: int) -> None:
        self._port, self._new_per_s = port, new_per_s
        self._wanted = deque([*["idle"] * idle, *["dripping"] * dripping])
        """What has to be opened, or opened again."""
        self._selector = selectors.DefaultSelector()
        self._dripped: dict[socket.socket, int] = {}
        self._passing: deque[tuple[float, socket.socket]] = deque()
        self._number = 0
        self.done: Counter[str] = Counter()

    def run(self, stop: threading.Event) -> None:
        self._first()
        began, opened, dripped_at = time.monotonic(), 0, 0.0
        while not stop.is_set():
            now = time.monotonic()
            while opened < (now - began) * self._new_per_s:
                self._another(opened)
                opened += 1
            if now - dripped_at > 1.0:
                dripped_at = now
                self._drip()
            while self._passing and now - self._passing[0][0] > LEFT_S:
                self._close(self._passing.popleft()[1])
            self._look()
            stop.wait(TICK_S)
        self.done["open"] = len(self._selector.get_map())

    def _first(self) -> None:
        """All ordered connections, as fast as they can be opened."""
        while self._wanted and self.done["tried"] < 50_000:
            self._open_wanted()
            if self.done["tried"] % 100 == 0:
                self._look(again=False)

    def _another(self, number: int) -> None:
        """One more: from the one address, or in place of one that was closed."""
        if number % 2 == 0 or not self._wanted:
            sock = self._open(ONE, "passing")
            if sock is not None:
                with suppress(OSError):
                    sock.send(HELLO if number % 4 == 0 else b"")
                self._passing.append((time.monotonic(), sock))
        else:
            self._open_wanted()

    def _open_wanted(self) -> None:
        what = self._wanted.popleft()
        self._number += 1
        sock = self._open(f"127.0.1.{1 + self._number % ADDRESSES}", what)
        if sock is not None and what == "dripping":
            self._dripped[sock] = 0

    def _open(self, host: str, what: str) -> socket.socket | None:
        self.done["tried"] += 1
        sock = socket.socket()
        try:
            sock.bind((host, 0))
            sock.settimeout(1.0)
            sock.connect(("127.0.0.1", self._port))
        except OSError:
            self.done["not taken"] += 1
            sock.close()
            return None
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, what)
        self.done[what] += 1
        return sock

    def _drip(self) -> None:
        for sock, sent in self._dripped.items():
            with suppress(OSError):
                sock.send(FRAME[sent : sent + 1])
                self._dripped[sock] = sent + 1
                self.done["bytes dripped"] += 1

    def _look(self, *, again: bool = True) -> None:
        """Find out which connections the node has closed."""
        for key, _ in self._selector.select(0):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            self._close(sock)
            self.done["closed by the node"] += 1
            if again and key.data != "passing":
                self._wanted.append(key.data)

    def _close(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._selector.unregister(sock)
            self._dripped.pop(sock, None)
            sock.close()


def main(*numbers: int) -> None:
    crowd, stop = Crowd(*numbers), threading.Event()
    working = threading.Thread(target=crowd.run, args=(stop,))
    working.start()
    sys.stdin.read()
    stop.set()
    working.join()
    print(json.dumps(crowd.done))  # noqa: T201 (a program)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
