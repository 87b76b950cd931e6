"""The addresses of a node's listeners: clients are told those of the listener that they came by."""

from collections.abc import Mapping
from typing import Final

import attrs

from balancer.registry.records import HOST_CHARS_MAX, Address, Node
from balancer.registry.security import (
    LISTENER_NAME_CHARS_MAX,
    ListenerAddress,
    Security,
)
from paxos.ids import NodeId

DEFAULT_NAME: Final = "PLAINTEXT"
"""The listener of a node that has named none."""
PROTOCOLS_COUNT: Final = 4
PORT_MAX: Final = 65_535


@attrs.frozen
class SetListeners:
    """A node says about itself where each of its listeners is reached; none: only PLAINTEXT, at its
    address for Kafka clients."""

    node: NodeId
    listeners: tuple[ListenerAddress, ...]


def problem(command: SetListeners, nodes: Mapping[NodeId, Node]) -> str:
    """Why the listeners of a node cannot be these; "" if they can."""
    if command.node not in nodes:
        return f"node {command.node} is not registered"
    names = [one.name for one in command.listeners]
    if names != sorted(set(names)):
        return "two listeners have one name, or they are out of order"
    for one in command.listeners:
        if not 0 < len(one.name) <= LISTENER_NAME_CHARS_MAX or not one.name.isprintable():
            return f"a listener's name has 1 to {LISTENER_NAME_CHARS_MAX} printable characters"
        if one.protocol >= PROTOCOLS_COUNT:
            return f"listener {one.name} has protocol {one.protocol}"
        if not 0 < len(one.host) <= HOST_CHARS_MAX or not 0 < one.port <= PORT_MAX:
            return f"listener {one.name} has no address that a client could connect to"
    return ""


def after(security: Security, command: SetListeners) -> Security:
    """With the node's listeners set."""
    others = forgetting(security, command.node).listeners
    listeners = {**others, command.node: command.listeners} if command.listeners else others
    return attrs.evolve(security, listeners=dict(sorted(listeners.items())))


def forgetting(security: Security, node: NodeId) -> Security:
    rest = {one: named for one, named in security.listeners.items() if one != node}
    return attrs.evolve(security, listeners=rest)


def address_of(security: Security, node: Node, listener: str) -> Address | None:
    """Where clients of a listener reach a node; None if it has no listener of this name."""
    named = security.listeners.get(node.node)
    if named is None:
        return node.kafka if listener == DEFAULT_NAME else None
    return next((one.address for one in named if one.name == listener), None)
