"""What protects the links between nodes: mutual TLS, or nothing.

Both sides of a connection show certificates, and verify those of the other by the authorities of
`[peer_tls]`. A certificate also has a name, of one node of one cluster
(runtime.membership.node_names). Who has dialed sends nothing before it knows that it has reached
the node that it meant; who has accepted hands on no frame before the certificate's name fits, and
then takes HELLO only from the node that the name proves. So a frame comes from who its link is for.

What TLS gives beyond that: bytes that were changed, left out, moved or sent again on the way end
the link (RFC 8446, section 5.2: each record is authenticated under its number), and what was
recorded is worth nothing on another connection, for the keys are made of both sides' new secrets.
Sessions are not resumed, and no data is sent with the first message.

While a cluster is converted (`peer_tls.insecure_plain_too`), plain text is let in as well, and used
for a node that closes the connection without a word of TLS: one that has no `[peer_tls]` yet. Never
for one whose certificate is wrong, and a plain link does not displace an encrypted one. Whoever can
reach the port or sits between may still pretend to be a node: hence the setting's name.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from cryptography import x509

from paxos.codec import PeerError
from paxos.ids import NodeId
from runtime.config.config import Config
from runtime.config.fields import ConfigError
from runtime.config.peer_tls import PeerTlsSection
from runtime.membership.node_names import NodeName, WrongName, check_caller, check_reached, name_in
from runtime.network.channel import Channel
from runtime.network.dataplane import Plane
from runtime.network.stream import Stream
from runtime.network.tls_channel import Handshakes, TlsChannel
from runtime.network.tls_context import DIALS, TlsContexts, TlsFiles, TlsFilesError
from runtime.network.tls_or_plain import TlsOrPlain
from runtime.network.tls_stream import TlsStream
from runtime.peers.incoming import Incoming
from runtime.peers.outgoing import Outgoing
from runtime.system.journal import Journal
from wire.framing import FrameLimits

ACCEPTS: Final = "required"
"""The mode of runtime.network.tls_context: the other side must show a certificate."""
_LENGTH: Final = re.compile(r"a frame of (\d+) bytes")
_TLS_HEADS: Final = (0x1603, 0x1503)
"""How a handshake and an alert of TLS begin, where a length is expected."""


class LinkSecurity(Protocol):
    """How connections between nodes become channels. `others` are arguments of Channel."""

    @property
    def encrypts(self) -> bool: ...

    @property
    def contexts(self) -> TlsContexts | None: ...

    @property
    def handshakes(self) -> Handshakes | None: ...

    def dialed(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        link: Outgoing,
        on_reached: Callable[[], None],
        **others: Any,  # noqa: ANN401
    ) -> Channel:
        """A channel over a connection that we have opened. If it is `shaking`, `on_reached` is
        called when the other side has proved to be the node that is meant."""
        ...

    def accepted(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        incoming: Incoming,
        **others: Any,  # noqa: ANN401
    ) -> Channel: ...

    def check(self, incoming: Incoming, claimed: NodeId, old: Incoming | None) -> None:
        """Check that a greeting comes from the node that it claims; `old` is the connection of that
        node that it would displace.

        Raises:
            PeerError: it does not.
        """

    def plain_next(self, link: Outgoing) -> bool:
        """Whether the next connection to the node is to be one in plain text, as this one ends."""
        ...

    def in_words(self, reason: str) -> str:
        """Why a connection without a greeting has ended, for the operator."""
        ...


class PlainLinks:
    """Nothing: everybody is believed who reaches the port."""

    encrypts = False
    contexts = handshakes = None

    def dialed(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        link: Outgoing,
        on_reached: Callable[[], None],
        **others: Any,  # noqa: ANN401
    ) -> Channel:
        return Channel(plane, sock, limits, **others)

    def accepted(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        incoming: Incoming,
        **others: Any,  # noqa: ANN401
    ) -> Channel:
        return Channel(plane, sock, limits, **others)

    def check(self, incoming: Incoming, claimed: NodeId, old: Incoming | None) -> None:
        """Nothing is known but what it says."""

    def plain_next(self, link: Outgoing) -> bool:
        return False

    def in_words(self, reason: str) -> str:
        found = _LENGTH.search(reason)
        if found is not None and int(found[1]) >> 16 in _TLS_HEADS:
            return "it speaks TLS, and this node has no [peer_tls]"
        return reason


PLAIN_LINKS: Final = PlainLinks()


class TlsLinks:
    encrypts = True

    def __init__(
        self, plane: Plane, contexts: TlsContexts, me: NodeName, *, plain_too: bool = False
    ) -> None:
        self.contexts: TlsContexts = contexts
        self.plain_too = plain_too
        self.handshakes: Handshakes = Handshakes(plane)
        """Apart from those of clients, which must not delay them."""
        self._me = me

    def dialed(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        link: Outgoing,
        on_reached: Callable[[], None],
        **others: Any,  # noqa: ANN401
    ) -> Channel:
        if link.plain:
            return Channel(plane, sock, limits, **others)
        channel = TlsChannel(
            plane,
            TlsStream(sock, self.contexts.of(DIALS), dialed=True),
            limits,
            handshakes=self.handshakes,
            on_secured=partial(self._reached, link.node, on_reached),
            **others,
        )
        channel.begin()
        return channel

    def _reached(self, node: NodeId, on_reached: Callable[[], None], stream: TlsStream) -> str:
        try:
            check_reached(stream.peer_names(), NodeName(node, self._me.cluster_id))
        except WrongName as error:
            return str(error)
        on_reached()
        return ""

    def accepted(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        incoming: Incoming,
        **others: Any,  # noqa: ANN401
    ) -> Channel:
        kind = TlsOrPlain if self.plain_too else TlsStream
        return TlsChannel(
            plane,
            kind(sock, self.contexts.of(ACCEPTS)),
            limits,
            handshakes=self.handshakes,
            on_secured=partial(self._came, incoming),
            **others,
        )

    def _came(self, incoming: Incoming, stream: TlsStream) -> str:
        if stream.plain:
            return ""
        try:
            incoming.proved = check_caller(stream.peer_names(), self._me)
        except WrongName as error:
            return str(error)
        return ""

    def check(self, incoming: Incoming, claimed: NodeId, old: Incoming | None) -> None:
        if incoming.proved is None:
            assert self.plain_too, "a channel without it takes no frames from who proves nothing"
            if old is not None and old.proved is not None:
                raise PeerError(f"it says in plain text that it is node {claimed}, which uses TLS")
        elif incoming.proved != claimed:
            raise PeerError(f"it says that it is node {claimed}, with node {incoming.proved}'s key")

    def plain_next(self, link: Outgoing) -> bool:
        channel = link.opened
        unheard = isinstance(channel, TlsChannel) and not channel.heard
        return self.plain_too and unheard

    def in_words(self, reason: str) -> str:
        return reason


def links_of(config: Config, plane: Plane, journal: Journal) -> LinkSecurity:
    """What `[peer_tls]` says.

    Raises:
        ConfigError: the files are wrong.
    """
    section = config.peer_tls
    if not section.encrypts:
        return PLAIN_LINKS
    me = NodeName(config.node.id, config.node.cluster_id)
    try:
        contexts = TlsContexts(files_of(section), (ACCEPTS, DIALS), journal, partial(_check, me))
    except TlsFilesError as error:
        raise ConfigError([str(error)]) from error
    if section.insecure_plain_too:
        journal.warning(
            "links between nodes may be in plain text: everyone who reaches listen.peer may "
            "pretend to be a node",
            setting="peer_tls.insecure_plain_too",
        )
    return TlsLinks(plane, contexts, me, plain_too=section.insecure_plain_too)


def files_of(section: PeerTlsSection) -> TlsFiles:
    assert section.certificate is not None
    assert section.key is not None
    return TlsFiles(
        certificate=section.certificate,
        key=section.key,
        client_authorities=section.authorities,
        section=section.SECTION,
        authorities_name="authorities",
    )


def _check(me: NodeName, files: TlsFiles, certificate: "x509.Certificate") -> None:
    """The others would refuse a node with another certificate: it does not start."""
    from cryptography import x509  # only nodes with TLS need it
    from cryptography.x509.oid import ExtendedKeyUsageOID

    extensions, where = certificate.extensions, files.shown("certificate")
    again = f"make one with: evenkeel cert node NAME --node {me.node} --cluster {me.cluster_id}"
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns_names = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        dns_names = []
    try:
        found = name_in(dns_names)
    except WrongName as error:
        raise TlsFilesError(f"{where}: {error}; {again}") from error
    if found != me:
        text = f"it is that of {found.in_words}, and this is {me.in_words}"
        raise TlsFilesError(f"{where}: {text}; {again}")
    try:
        uses = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return  # it is for everything
    if not uses >= {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}:
        text = "a node both accepts and opens links: it must be for servers and for clients"
        raise TlsFilesError(f"{where}: {text} (extendedKeyUsage); {again}")
