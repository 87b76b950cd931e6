"""`[peer_tls]`: mutual TLS on links between nodes.

Its files are all there, or none is. Without them links are in plain text, which is refused at the
start as soon as others than this machine reach `listen.peer`, unless
`security.insecure_listeners` allows it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

import attrs

from runtime.config.fields import bool_field, path_field, show
from runtime.config.sections import ListenSection
from runtime.config.security import SecuritySection

FILES: Final = ("certificate", "key", "authorities")


@attrs.frozen(kw_only=True)
class PeerTlsSection:
    SECTION: ClassVar = "peer_tls"
    certificate: Path | None = path_field(  # noqa: RUF009 (frozen)
        "PEM file: a certificate with the name node-N.CLUSTER-ID.evenkeel, then its chain"
    )
    key: Path | None = path_field("PEM file with its key, readable by the owner only")  # noqa: RUF009 (frozen)
    authorities: Path | None = path_field(  # noqa: RUF009 (frozen)
        "PEM file: the authorities whose certificates of nodes are believed"
    )
    insecure_plain_too: bool = bool_field(
        False, "links in plain text too, while the nodes of a cluster are converted"
    )

    @property
    def encrypts(self) -> bool:
        return self.certificate is not None

    @property
    def proves_nodes(self) -> bool:
        """Whether nobody else than a node can use `listen.peer`."""
        return self.encrypts and not self.insecure_plain_too

    @property
    def mode(self) -> str:
        """In a word, for views."""
        return "plain" if not self.encrypts else "both" if self.insecure_plain_too else "tls"


def insecure(listen: ListenSection, peer_tls: PeerTlsSection) -> bool:
    """Whether `listen.peer` proves nobody, and others reach it. A conversion that is not finished
    is told of on loopback as well."""
    if peer_tls.insecure_plain_too:
        return True
    return not listen.peer.is_loopback and not peer_tls.encrypts


def problems(
    listen: ListenSection, peer_tls: PeerTlsSection, security: SecuritySection
) -> Iterator[str]:
    """What is half finished, and what would be open to everybody: a sentence each."""
    missing = [f"peer_tls.{key}" for key in FILES if getattr(peer_tls, key) is None]
    if 0 < len(missing) < len(FILES):
        yield (
            f"{' and '.join(missing)}: missing; links between nodes need a certificate, its key, "
            "and the authorities of the other nodes' certificates"
        )
    elif missing and peer_tls.insecure_plain_too:
        yield (
            "peer_tls.insecure_plain_too = true: there is nothing but plain text without "
            f"{', '.join(missing)}; set them, or leave this out"
        )
    if listen.peer.is_loopback or peer_tls.proves_nodes or security.insecure_listeners:
        return
    cure = (
        "take peer_tls.insecure_plain_too out once all links are encrypted"
        if peer_tls.insecure_plain_too
        else "set peer_tls.certificate, peer_tls.key and peer_tls.authorities (evenkeel cert node)"
    )
    yield (
        f"listen.peer = {show(listen.peer)}: everyone who reaches it may pretend to be a node; "
        f"{cure}, or use a loopback address, or set security.insecure_listeners = true if only "
        "those can reach it who may"
    )
