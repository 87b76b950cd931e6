"""Proposing to the registry from any node, and joining the cluster.

Every node proposes to found the cluster (the first command wins), registers itself at each start,
and, once all founders are registered, proposes the first ideal placement. It repeats each proposal
until its own copy of the registry shows the result: nothing has to succeed the first time.
"""

from collections.abc import Callable, Iterable
from typing import Final

from balancer.planner.planner import even_placement
from balancer.registry.codec import decode_result, encode_command
from balancer.registry.commands import (
    Command,
    Decided,
    FoundCluster,
    Refused,
    RegisterNode,
    Result,
    SetPlacement,
)
from balancer.registry.listeners import SetListeners
from balancer.registry.registry import Registry
from broker.ports import Groups
from broker.proposals.commands import CommandKind, opaque
from broker.proposals.intake import Done, FailureReason, Outcome
from paxos.ids import MS, REGISTRY_GROUP, NodeId, Now

RETRY_NS: Final = 500 * MS
LISTENERS_FROM: Final = 3
"""The cluster version from which the registry keeps addresses of listeners (broker.formats)."""

OnResult = Callable[[Result | None], None]


class RegistryClient:
    def __init__(self, groups: Groups, registry: Registry) -> None:
        self._groups, self.registry = groups, registry

    @property
    def reachable(self) -> bool:
        return self._groups.master(REGISTRY_GROUP) is not None

    def propose(self, command: Command, on_result: OnResult) -> None:
        """`on_result` gets the result, or None if the command failed or its outcome is unknown."""
        self.submit(
            command, lambda told: on_result(None if isinstance(told, FailureReason) else told)
        )

    def submit(self, command: Command, on_told: Callable[[Result | FailureReason], None]) -> None:
        """`on_told` gets the result, or why there is none; only after UNKNOWN may the command
        still be carried out."""

        def done(outcome: Outcome) -> None:
            on_told(decode_result(outcome.result) if isinstance(outcome, Done) else outcome.why)

        body = encode_command(command)
        chunks = opaque(CommandKind.REGISTRY, body)
        self._groups.submit(REGISTRY_GROUP, chunks, done, anywhere=True)


class Joining:
    """Keeps the registry's entry of this node up to date; `tick` may be called at any rate."""

    def __init__(
        self,
        client: RegistryClient,
        found: FoundCluster,
        register: RegisterNode,
        nodes: Iterable[NodeId],
        listeners: SetListeners | None = None,
    ) -> None:
        self.client, self._found, self._register = client, found, register
        self._nodes = frozenset(nodes)
        self._listeners = listeners or SetListeners(register.node, ())
        self._asked: Command | None = None
        self._asked_boot_ns = 0
        self.refusal = ""
        """Why the registry refused this node's last proposal; "" if it did not."""

    def tick(self, now: Now) -> None:
        """Propose what is missing; the same command again only after RETRY_NS."""
        command = self._missing()
        if command is None or not self.client.reachable:
            return
        if command == self._asked and now.boot_ns - self._asked_boot_ns < RETRY_NS:
            return
        self._asked, self._asked_boot_ns = command, now.boot_ns
        self.client.propose(command, self._told)

    def _told(self, result: Result | None) -> None:
        self.refusal = ""
        if isinstance(result, Refused):
            self.refusal = result.detail or result.reason.name.lower().replace("_", " ")

    @property
    def registered(self) -> bool:
        node = self.client.registry.nodes.get(self._register.node)
        return node is not None and node.incarnation >= self._register.incarnation

    @property
    def _listeners_differ(self) -> bool:
        """Whether the registry has other addresses of our listeners, and may be told ours: at a
        lower cluster version it cannot be."""
        registry, ours = self.client.registry, self._listeners
        known = registry.security.listeners.get(ours.node, ())
        return known != ours.listeners and registry.cluster_version.version >= LISTENERS_FROM

    def _missing(self) -> Command | None:
        registry = self.client.registry
        if registry.cluster is None:
            return Decided(registry.applied, self._found)
        if not self.registered:
            return self._register
        if self._listeners_differ:
            return self._listeners
        if not registry.placement and self._nodes <= registry.nodes.keys():
            even = even_placement(registry.groups, self._nodes)  # type: ignore[arg-type] # ints
            return SetPlacement(registry.versions.placement, even)
        return None
