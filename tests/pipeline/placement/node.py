"""A node's HTTP side for the placement job, with a real registry behind it.

tests/spark/test_placement.py uses a real node; this one can fail as a test wants.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from balancer.planning import Planning, PlanningView
from balancer.problem_json import to_json
from balancer.registry.commands import PublishWeights, Refused
from balancer.registry.load import ClusterLoad
from balancer.registry.policy import Weights
from paxos.ids import MS, GroupId, NodeId
from pipeline.placement.admin import Endpoint
from tests.balancer.literals import at, founded, placement, run


class Node:
    """Six groups and the registry's on three nodes, even by count. `fails` replaces an answer: a
    status and a body."""

    def __init__(self) -> None:
        self.registry = founded(6)
        run(self.registry, placement({0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}))
        self.policy: dict[str, Any] = {
            "evenness": "weight",
            "automatic": True,
            "trigger_percent": 30,
        }
        self.paused = False
        self.fails: tuple[int, bytes] | None = None
        self.asked: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append(f"{method} {path}")
        if self.fails is not None:
            return self.fails
        if path == "/problem":
            return 200, json.dumps(self.told()).encode()
        sent = json.loads(body)
        weights = {GroupId(int(group)): weight for group, weight in sent["weights"].items()}
        command = PublishWeights(Weights(sent["source"], sent["computed_wall_ms"] * MS, weights))
        (result,) = run(self.registry, command)
        if isinstance(result, Refused):
            return 409, json.dumps({"error": f"{result.reason.name} {result.detail}"}).encode()
        return 200, b'{"version": 1}'

    def told(self) -> dict[str, Any]:
        masters = {group: node for group, node in self.registry.placement.items()}
        view = PlanningView(
            now=at(0),
            me=NodeId(1),
            ours=True,
            registry=self.registry,
            masters=masters,
            alive=frozenset(self.registry.nodes),
            weights=ClusterLoad().weights(at(0), masters),
        )
        problem = Planning().problem(view)
        return {"policy": self.policy, "paused": self.paused, "problem": to_json(problem)}


@contextmanager
def served(node: Node) -> Iterator[Endpoint]:
    """The node listens on loopback while the body runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply("GET", b"")

        def do_POST(self) -> None:
            self._reply("POST", self.rfile.read(int(self.headers["Content-Length"])))

        def _reply(self, method: str, body: bytes) -> None:
            status, answer = node.answer(method, self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_words: object) -> None:
            """Nothing: the test looks at the requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Endpoint("127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
