"""The smallest process that looks like a node to the launcher: /readyz, SIGTERM, one config.

TINY_NODE in the environment makes it misbehave: exit-3, never-ready, ignore-term. With lonely, node
2 ends and the others are not ready without it. With pair, a node is not ready while the other one
is away.
"""

import argparse
import os
import signal
import socket
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        misbehaviour = os.environ.get("TINY_NODE")
        waiting = misbehaviour in ("never-ready", "lonely")
        if misbehaviour == "pair":
            waiting = not all(map(answers, PEERS))
        self.send_response(503 if waiting else 200)
        self.end_headers()
        self.wfile.write(b"is a majority up?" if waiting else str(os.getpid()).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


PEERS: list[str] = []


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def answers(peer: str) -> bool:
    try:
        socket.create_connection(place(peer), 1).close()
    except OSError:
        return False
    return True


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--parent-pid", type=int, required=True)
    arguments = parser.parse_args()
    assert os.getppid() == arguments.parent_pid
    config = tomllib.loads(arguments.config.read_text())
    say(f"tiny node {config['node']['id']} {arguments.set}")
    misbehaviour = os.environ.get("TINY_NODE")
    if misbehaviour == "exit-3" or (misbehaviour == "lonely" and config["node"]["id"] == 2):
        say("the disk is on fire")
        sys.exit(3)
    if misbehaviour == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    PEERS.extend(config["peers"].values())
    with socket.create_server(place(config["listen"]["peer"])):
        HTTPServer(place(config["listen"]["http"]), Handler).serve_forever()


main()
