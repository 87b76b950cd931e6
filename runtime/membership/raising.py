"""Raising the cluster version: when every member can read the next one, and not before.

The registry's master does it, by itself or when an operator says so. A member is a node that is
registered or a founder that has yet to register, whether it runs or not. What it reads it tells on
each link; from cluster version 2 on the registry has it as well, so that a node that is down counts
with what it last ran. After the last node has been upgraded, the raise waits for `after_ns`: until
then all nodes can go back to the version before. A cluster that begins with this program has
nothing to go back to, and is raised at once.
"""

from collections.abc import Iterable
from typing import Final

import attrs

from balancer.registry.commands import Command, Decided
from balancer.registry.registry import Registry
from balancer.registry.versions import NoteReads, RaiseClusterVersion, Reads
from paxos.ids import MS, NodeId, Now
from runtime.membership.peer_versions import PeerVersions
from runtime.membership.registry_client import RegistryClient
from runtime.membership.versions import described
from runtime.system.journal import Journal
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST

RETRY_NS: Final = 2_000 * MS
NEW_SLOTS_MAX: Final = 1_000
"""A cluster whose registry has a longer log is not new: renewals of its lease alone take so many
slots in a quarter of an hour."""


@attrs.frozen(kw_only=True)
class RaisingConfig:
    automatic: bool = True
    after_ns: int = 0


class Raising:
    def __init__(
        self,
        me: NodeId,
        client: RegistryClient,
        peers: PeerVersions,
        config: RaisingConfig,
        journal: Journal,
    ) -> None:
        self._me, self._client, self._peers = me, client, peers
        self._config, self._journal = config, journal
        self._began_empty = client.registry.cluster is None
        self._since: tuple[int, int] | None = None
        """The version that all can read, and since when."""
        self._asked_boot_ns = -RETRY_NS
        self._seen = self.version

    @property
    def registry(self) -> Registry:
        return self._client.registry

    @property
    def version(self) -> int:
        return self.registry.cluster_version.version

    @property
    def held(self) -> str:
        """Why the version does not rise by itself, though it could; "" if it does."""
        if self.registry.cluster_version.held:
            return "an operator holds it (evenkeel cluster version --release)"
        if not self._config.automatic:
            return 'node.raise_cluster_version = "by-hand" (evenkeel cluster version --set N)'
        return ""

    # -- who reads what -----------------------------------------------------------------------

    def members(self) -> list[NodeId]:
        registry = self.registry
        founders = () if registry.cluster is None else registry.cluster.founders
        return sorted({*registry.nodes, *founders, self._me} - registry.removed)

    def reads(self, node: NodeId) -> Reads | None:
        """What a node has told last; None if this node has not heard it since it started."""
        if node == self._me:
            return self._peers.ours.reads
        told = self._peers.of(node)
        return self.registry.cluster_version.reads.get(node) if told is None else told.reads

    def lacking(self, version: int) -> list[str]:
        """Which members are not known to read `version`, in words."""
        found = []
        for node in self.members():
            reads = self.reads(node)
            if reads is None:
                found.append(f"node {node} has not told its version: is it down?")
            elif not reads.oldest <= version <= reads.newest:
                found.append(f"node {node} runs {described(reads)}")
        return found

    def possible(self) -> int:
        """The newest version that every member can read."""
        version = self.version
        while version < NEWEST and not self.lacking(version + 1):
            version += 1
        return version

    def waits_for(self) -> str:
        """What the next version waits for, in words; "" for nothing that is known."""
        if self.version >= NEWEST:
            return ""
        return "; ".join(self.lacking(self.version + 1)) or self.held

    # -- raising ------------------------------------------------------------------------------

    @property
    def _is_new(self) -> bool:
        """Whether the cluster began in this process's life. A node with an empty directory may also
        have joined an older one, in the middle of its upgrade; its own registration is then a
        recent slot."""
        return self._began_empty and self.registry.applied <= NEW_SLOTS_MAX

    def tick(self, now: Now, *, master: bool) -> None:
        """Called once a second; `master`: whether this node is the registry's."""
        if self.version != self._seen:
            self._seen = self.version
            self._journal.warning("cluster version raised", version=self.version)
        due = now.boot_ns - self._asked_boot_ns >= RETRY_NS
        for command in self._wanted(now, master=master) if due else ():
            self._asked_boot_ns = now.boot_ns
            self._client.propose(command, lambda _result: None)

    def _wanted(self, now: Now, *, master: bool) -> Iterable[Command]:
        registry, ours = self.registry, self._peers.ours.reads
        noted = registry.cluster_version.reads.get(self._me)
        if self.version > 1 and self._me in registry.nodes and noted != ours:
            yield NoteReads(self._me, ours)
        possible = self.possible() if master else self.version
        if possible <= self.version or self.held:
            self._since = None
            return
        if self._since is None or self._since[0] != possible:
            self._since = possible, now.boot_ns
        waited_ns = now.boot_ns - self._since[1]
        everyone_is_here = set(self.members()) <= registry.nodes.keys()
        if everyone_is_here and (self._is_new or waited_ns >= self._config.after_ns):
            yield Decided(registry.applied, RaiseClusterVersion(possible))
