"""The smallest process that behaves to the launcher like a node: /readyz, SIGTERM, one config.

TINY_NODE in the environment makes it misbehave: exit-3, never-ready, ignore-term; lonely: node 2
ends, and the others are not ready without it.
"""

import argparse
import os
import signal
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        waiting = os.environ.get("TINY_NODE") in ("never-ready", "lonely")
        self.send_response(503 if waiting else 200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


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
    host, _, port = config["listen"]["http"].rpartition(":")
    HTTPServer((host, int(port)), Handler).serve_forever()


main()
