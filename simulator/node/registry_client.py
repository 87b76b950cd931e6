"""Proposing to the registry from a simulated node, and what a node does to join its cluster."""

from collections.abc import Callable
from typing import Final

import attrs

from balancer.registry.codec import decode_result, encode_command
from balancer.registry.commands import (
    Command,
    Decided,
    FoundCluster,
    RegisterNode,
    Result,
    SetPolicy,
)
from balancer.registry.records import Address
from balancer.registry.registry import Registry
from broker.proposals.commands import CommandKind, opaque
from broker.proposals.intake import Done, Outcome, Pending
from paxos.ids import MS, REGISTRY_GROUP, Now
from simulator.node.host import Host

CLUSTER: Final = "simulated"
HOUSEKEEPING_NS: Final = 400 * MS
PORT: Final = 9_000


class RegistryClient:
    """For one life of a node, which says whether anybody still wants results."""

    def __init__(self, node: Host, registry: Registry) -> None:
        self._node, self.registry, self._life = node, registry, node.life
        self._next_boot_ns = 0

    def propose(
        self, command: Command, done: Callable[[Result], None] = lambda _result: None
    ) -> None:
        """`done` gets the registry's answer, unless the outcome is unknown."""

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                result = decode_result(outcome.result)
                self._node.world.loop.after(0, self._result, done, result)

        chunks = opaque(CommandKind.REGISTRY, encode_command(command))
        pending = Pending(chunks, sum(map(len, chunks)), answered)
        self._node.command(REGISTRY_GROUP, pending, anywhere=True)

    def _result(self, done: Callable[[Result], None], result: Result) -> None:
        if self._node.up and self._node.life == self._life:
            self._node.enter(done, result)

    def tick(self, now: Now) -> None:
        """Found the cluster, register, set its policy, until our copy of the registry shows it."""
        if now.boot_ns < self._next_boot_ns:
            return
        self._next_boot_ns = now.boot_ns + HOUSEKEEPING_NS
        node = self._node
        if self.registry.cluster is None:
            found = FoundCluster(CLUSTER, max(node.world.members))
            self.propose(Decided(self.registry.applied, found))
        known = self.registry.nodes.get(node.me)
        if known is None or known.incarnation < node.core.incarnation:
            address = Address(f"node-{node.me}", PORT + node.me)
            incarnation = node.core.incarnation
            self.propose(RegisterNode(node.me, incarnation, address, address, address))
        steals_max = node.world.options.steals_max
        if self.registry.cluster is not None and self.registry.policy.steals_max != steals_max:
            self.propose(SetPolicy(None, attrs.evolve(self.registry.policy, steals_max=steals_max)))
