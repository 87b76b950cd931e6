"""Worlds whose nodes ask the rules, and clients with a name."""

from typing import Any

from balancer.registry.rules import CreateRules, DeleteRules, Rule
from broker.api import ApiTable
from broker.security.audit import AuditLog
from broker.security.authorizer import Authorizer
from broker.security.principal import Principal
from tests.broker.world import CLIENT_HOST, World
from wire.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

ALICE = Principal("User", "alice")
ROOT = Principal("User", "root")


def rule(
    operation: Operation,
    kind: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
    **fields: Any,
) -> Rule:
    """One that allows alice."""
    made = Rule(kind, name, PatternType.LITERAL, str(ALICE), "*", operation, Permission.ALLOW)
    return made._replace(**fields)


class Ruled:
    """A world with an authorizer on every node; `entries` is what the audit log of node 1 got."""

    def __init__(self, world: World, *, grants: bool = False) -> None:
        self.world = world
        self.entries: list[Any] = []
        for number, node in world.nodes.items():
            write = self.entries.append if number == 1 else lambda _: None
            audit = AuditLog(write, world.cluster.clock.now, grants=grants)
            broker = node.broker
            broker.authorizer = Authorizer(node.registry, frozenset({str(ROOT)}), audit)
            node.api = ApiTable(broker)

    def allow(self, *rules: Rule) -> None:
        self.world.run(CreateRules(rules))

    def revoke(self, *rules: Rule) -> None:
        self.world.run(DeleteRules(rules))

    def send(self, message: Any, version: int, who: Principal = ALICE, node: int = 1) -> Any:
        """Ask in somebody's name."""
        client = str(who)
        connection = self.world.connection(node, client)
        connection.principal = who
        return self.world.send(node, message, version, client=client)

    def ask(self, message: Any, version: int, who: Principal = ALICE, node: int = 1) -> Any:
        asked = self.send(message, version, who, node)
        self.world.cluster.settle()
        assert not self.world[node].bugs, self.world[node].bugs
        return asked.response


HOST = CLIENT_HOST
