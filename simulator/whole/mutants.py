"""Planted bugs of the shell, looked for in worlds of whole nodes (docs/simulator.md).

How they are planted: simulator/mutants/planting.py.
"""

from collections.abc import Mapping
from typing import Final

from broker.handlers.records.fetch import _Fetch
from runtime.clients.clients import Client, Clients
from runtime.engine.engine import Engine
from runtime.engine.forwarding import Forwards
from runtime.membership.masters import MasterGossip
from runtime.peers.peers import Peers
from simulator.mutants.planting import Mutant, mutant
from simulator.whole.mutants_faults import MUTANTS as OF_FAULTS

MUTANTS: Final[Mapping[str, Mutant]] = {
    **OF_FAULTS,
    "votes-before-durable": mutant(
        "durable before visible",
        "promises and votes leave before the log has them",
        (Engine._release, "if not after or after[0][0] > durable:", "if not after:"),
        (Engine._release, "while after and after[0][0] <= durable:", "while after:"),
        tests="tests/runtime/engine",
    ),
    "lost-forwards-are-refused": mutant(
        "forwarding",
        "what was forwarded on a link that is lost is told to be not done",
        (Forwards.lost, "NotDone(FailureReason.UNKNOWN)", "NotDone(FailureReason.NOT_MASTER)"),
        tests="tests/runtime/engine",
    ),
    "late-forwards-are-refused": mutant(
        "forwarding",
        "a forwarded command whose time is over is told to be not done",
        (Forwards.time_out, "NotDone(FailureReason.UNKNOWN)", "NotDone(FailureReason.NOT_MASTER)"),
        tests="tests/runtime/engine",
    ),
    "fetch-without-a-lease": mutant(
        "R14",
        "what was read is told whether or not the lease still runs",
        (
            _Fetch.answer,
            "if not self._still_leads(group, leaders[group])]",
            "if False]",
        ),
        tests="tests/broker/handlers",
    ),
    "masters-told-once-a-second": mutant(
        "gossip of masters",
        "masters tell of themselves once a second, however short their leases",
        (MasterGossip.due, "self._every_ns", "TELL_EVERY_NS"),
        tests="tests/runtime/membership/test_masters.py",
    ),
    "answers-overtake": mutant(
        "order of answers",
        "what is done first on a connection is answered first",
        (Client.flush, "while queue and queue[0].done:", "while any(one.done for one in queue):"),
        (
            Client.flush,
            "place = queue.popleft()",
            "place = next(one for one in queue if one.done); queue.remove(place)",
        ),
        tests="tests/runtime/clients",
    ),
    "dialled-once": mutant(
        "links",
        "a peer that did not answer is not called again",
        (Peers._dialed, "link.dialing = False", "link.dialing = stream is None"),
        tests="tests/runtime/peers/test_peers.py",
    ),
    "the-old-link-stays": mutant(
        "links",
        "of two connections of one peer the older one is believed",
        (Peers.greeted, "self._incoming[hello.node] = incoming", "pass"),
        tests="tests/runtime/peers/test_peers.py",
    ),
    "the-gone-stay-counted": mutant(
        "one account of memory",
        "what a connection that has ended had under way stays in the node's account",
        (Clients.closed, "self.memory.requests -= client.unanswered_bytes", "pass"),
        tests="tests/runtime/clients/test_clients_floods.py",
    ),
}
