"""What a node's addresses say against each other: each problem with its cure.

Each setting alone is right, and yet no cluster forms, or no client gets through: a node that
listens on loopback while its peers are on other machines, or that advertises an address on which it
does not listen. Such a node would start, and wait for ever without a word.

An address that translates another one (NAT, a container's published port) is only known to the
operator. Who has one listens on the wildcard address; then nothing is compared.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from paxos.ids import NodeId
from runtime.config.fields import Address, show
from runtime.config.sections import ListenSection

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (a cure to be printed)
TRANSLATED: Final = "or listen on 0.0.0.0 if an address is translated on the way (NAT, a container)"


def contradictions(
    me: NodeId, listen: ListenSection, peers: Mapping[NodeId, Address]
) -> Iterator[str]:
    """A sentence for each; it begins with the setting to change."""
    others = {node: address for node, address in peers.items() if node != me}
    elsewhere = next(
        (f"peers.{node} = {show(one)}" for node, one in others.items() if not one.is_loopback), ""
    )
    own = peers[me]
    if elsewhere and listen.peer.is_loopback:
        cure = own if not own.is_loopback else Address(EVERYWHERE, listen.peer.port)
        yield (
            f"listen.peer = {show(listen.peer)}: only this machine can connect to it, and "
            f"{elsewhere} is on another; set listen.peer = {show(cure)}"
        )
    elif others and _differ(listen.peer, own):
        yield (
            f"peers.{me} = {show(own)}: the other nodes connect to it, and this node listens on "
            f"listen.peer = {show(listen.peer)}; make them equal, {TRANSLATED}"
        )
    elif elsewhere and own.is_loopback:
        yield (
            f"peers.{me} = {show(own)}: the other nodes cannot connect to it, for "
            f"{elsewhere} is on another machine; name this machine's own address"
        )
    yield from _for_clients(listen, elsewhere)


def _for_clients(listen: ListenSection, elsewhere: str) -> Iterator[str]:
    told = listen.told_to_clients
    if listen.kafka.is_loopback and not told.is_loopback:
        yield (
            f"listen.advertised_kafka = {show(told)}: clients are sent there, and "
            f"listen.kafka = {show(listen.kafka)} takes only those of this machine; set "
            f"listen.kafka = {show(told)}, or listen on 0.0.0.0"
        )
    elif listen.kafka.is_loopback and elsewhere:
        wildcard = Address(EVERYWHERE, listen.kafka.port)
        yield (
            f"listen.kafka = {show(listen.kafka)}: only clients on this machine can connect to it, "
            f"and {elsewhere} is on another; set listen.kafka = {show(wildcard)} and "
            "listen.advertised_kafka to this machine's address"
        )
    elif _differ(listen.kafka, told):
        yield (
            f"listen.advertised_kafka = {show(told)}: clients are sent there, and this node "
            f"listens on listen.kafka = {show(listen.kafka)}; make them equal, {TRANSLATED}"
        )


def _differ(listening: Address, told: Address) -> bool:
    """Whether nobody who connects to `told` gets here; False where that cannot be known."""
    if listening.is_wildcard or (listening.is_loopback and told.is_loopback):
        return False  # a wildcard takes all; on one machine there may be a proxy between
    if listening.port != told.port:
        return True
    return _is_ip(listening) and _is_ip(told) and listening.host != told.host


def _is_ip(address: Address) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(address.host)
        return True
    return False


def is_of_this_machine(host: str) -> bool:
    """Whether a socket can be bound to this IP address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def mistaken_machine(
    me: NodeId,
    peers: Mapping[NodeId, Address],
    is_here: Callable[[str], bool] = is_of_this_machine,
) -> str:
    """Another node's file on this machine: two nodes with one id, and none with the other; "" if
    it is the right one, or that cannot be known (names, translated addresses)."""
    if not _is_ip(peers[me]) or is_here(peers[me].host):
        return ""
    for node, address in peers.items():
        if node != me and _is_ip(address) and not address.is_loopback and is_here(address.host):
            return (
                f"node.id = {me}: this is the machine of node {node} (peers.{node} = "
                f"{show(address)}), and peers.{me} = {show(peers[me])} is another; use the "
                f"configuration of node {node} here"
            )
    return ""
