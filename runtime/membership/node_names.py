"""The name of a node in its certificate, and what is wrong with a name.

`node-N.CLUSTER-ID.evenkeel` is one of the certificate's DNS names (subjectAltName). Nobody resolves
it; the ending keeps it apart from names of hosts, which the same certificate may have for clients.
It is compared as it is written: without wildcards, and capitals matter, for two clusters may differ
in nothing else. A certificate with the names of two nodes would let one be the other: it is none.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from paxos.ids import NodeId

ENDING: Final = "evenkeel"
CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9._-]+")
_NAME: Final = re.compile(rf"node-([1-9][0-9]{{0,8}})\.({CLUSTER_ID.pattern})\.{ENDING}")


class NodeName(NamedTuple):
    node: NodeId
    cluster_id: str

    def __str__(self) -> str:
        """As it is in a certificate."""
        return f"node-{self.node}.{self.cluster_id}.{ENDING}"

    @property
    def in_words(self) -> str:
        return f"node {self.node} of cluster {self.cluster_id!r}"


class WrongName(Exception):
    """A certificate does not prove what it has to; the text says why."""


def name_in(dns_names: Iterable[str]) -> NodeName:
    """The node that a certificate with these names proves.

    Raises:
        WrongName: none, or several.
    """
    matches = (_NAME.fullmatch(one) for one in dns_names)
    found = {NodeName(NodeId(int(one[1])), one[2]) for one in matches if one is not None}
    if not found:
        raise WrongName("its certificate names no node: it may be a client's")
    if len(found) > 1:
        raise WrongName("its certificate names more than one node")
    return found.pop()


def check_reached(dns_names: Iterable[str], wanted: NodeName) -> None:
    """Check that the other side of a connection that we opened is the node that we meant.

    Raises:
        WrongName: it is not.
    """
    found = name_in(dns_names)
    if found != wanted:
        raise WrongName(f"its certificate is that of {found.in_words}, not of {wanted.in_words}")


def check_caller(dns_names: Iterable[str], me: NodeName) -> NodeId:
    """Which node of our cluster has connected to us.

    Raises:
        WrongName: none that may.
    """
    found = name_in(dns_names)
    if found == me:
        raise WrongName(f"its certificate is this node's own, of {me.in_words}")
    if found.cluster_id != me.cluster_id:
        own = f"this is {me.in_words}"
        raise WrongName(f"its certificate is that of {found.in_words}, and {own}")
    return found.node
