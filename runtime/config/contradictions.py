"""What a node's addresses say against each other: each problem with its cure.

Each setting alone is right, and yet no cluster forms: a node that listens on loopback while its
peers are on other machines, or that names an address for its peers on which it does not listen.
Such a node would start, and wait for ever without a word.

An address that translates another one (NAT, a container's published port) is only known to the
operator. Who has one listens on the wildcard address; then nothing is compared. What clients are
told is believed: there may be a proxy or a load balancer in front (`evenkeel doctor` tries it).
"""

import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from paxos.ids import NodeId
from runtime.config.fields import Address, show
from runtime.config.listeners import ListenerSettings
from runtime.config.sections import ListenSection

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (a cure to be printed)
TRANSLATED: Final = "or listen on 0.0.0.0 if an address is translated on the way (NAT, a container)"


def contradictions(
    me: NodeId,
    listen: ListenSection,
    peers: Mapping[NodeId, Address],
    for_clients: Sequence[ListenerSettings],
) -> Iterator[str]:
    """A sentence for each; it begins with the setting to change."""
    others = {node: address for node, address in peers.items() if node != me}
    narrow = any(
        one.is_loopback for one in (listen.peer, *(x.bind for x in for_clients), peers[me])
    )
    elsewhere = next(
        (
            f"peers.{node} = {show(one)}"
            for node, one in others.items()
            if narrow and not is_loopback(one)
        ),
        "",
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
    if all(one.bind.is_loopback and one.told_to_clients.is_loopback for one in for_clients):
        yield from _for_clients(for_clients, elsewhere)


def _for_clients(for_clients: Sequence[ListenerSettings], elsewhere: str) -> Iterator[str]:
    first = for_clients[0].bind
    if elsewhere:
        wildcard = Address(EVERYWHERE, first.port)
        yield (
            f"listen.kafka = {show(first)}: only clients on this machine can connect to it, "
            f"and {elsewhere} is on another; set listen.kafka = {show(wildcard)} and "
            "listen.advertised_kafka to this machine's address"
        )


def _differ(listening: Address, told: Address) -> bool:
    """Whether nobody who connects to `told` gets here; False where that cannot be known."""
    if listening.is_wildcard or (listening.is_loopback and told.is_loopback):
        return False  # a wildcard takes all; on one machine there may be a proxy between
    if listening.port != told.port:
        return True
    ours, theirs = _ip(listening), _ip(told)
    return None not in (ours, theirs) and ours != theirs


def _ip(address: Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """However it is written; None for a name."""
    with suppress(ValueError):
        found = ipaddress.ip_address(address.host.partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return mapped or found
    return None


def is_loopback(address: Address) -> bool:
    """A name may be one of this machine (/etc/hosts); one that is not resolved is another's."""
    if address.is_loopback or _ip(address) is not None:
        return address.is_loopback
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(one[4][0])).is_loopback for one in found)


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
    if _ip(peers[me]) is None or is_here(peers[me].host):
        return ""
    for node, address in peers.items():
        known = _ip(address) is not None and not address.is_loopback
        if node != me and known and is_here(address.host):
            return (
                f"node.id = {me}: this is the machine of node {node} (peers.{node} = "
                f"{show(address)}), and peers.{me} = {show(peers[me])} is another; use the "
                f"configuration of node {node} here"
            )
    return ""
