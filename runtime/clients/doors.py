"""How the clients of a listener come in: plainly, or through TLS, with a certificate or without."""

from functools import partial
from typing import Any, Final

import attrs

from broker.ports import Connection
from broker.security.listeners import DEFAULT, ClientListener
from broker.security.principal_mapping import PrincipalMapping, distinguished_name
from runtime.network.channel import Channel
from runtime.network.dataplane import Plane
from runtime.network.stream import Stream
from runtime.network.tls_channel import Handshakes, TlsChannel
from runtime.network.tls_context import TlsContexts
from runtime.network.tls_stream import TlsStream
from wire.framing import FrameLimits


@attrs.frozen(kw_only=True)
class TlsDoor:
    contexts: TlsContexts
    client_certificates: str
    handshakes: Handshakes
    mapping: PrincipalMapping


@attrs.frozen
class Door:
    listener: ClientListener = DEFAULT
    tls: TlsDoor | None = None
    insecure: bool = False
    """Whether other machines reach it, and it proves nobody."""

    def channel(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        connection: Connection,
        **others: Any,  # noqa: ANN401  those of Channel
    ) -> Channel:
        """A channel over a connection that came by this listener.

        Raises:
            OSError: the kernel refuses to poll one more.
        """
        if self.tls is None:
            return Channel(plane, sock, limits, **others)
        context = self.tls.contexts.of(self.tls.client_certificates)
        return TlsChannel(
            plane,
            TlsStream(sock, context),
            limits,
            handshakes=self.tls.handshakes,
            on_secured=partial(self._secured, connection),
            **others,
        )

    def _secured(self, connection: Connection, stream: TlsStream) -> str:
        """Take note of whom a certificate proves; returns why it is not let in, or ""."""
        subject = stream.peer_subject()
        if subject is None:
            return ""  # the context has let it in without one
        assert self.tls is not None
        name = distinguished_name(subject)
        principal = self.tls.mapping.principal(name)
        if principal is None:
            return f"no rule of tls.principal_mapping fits the certificate of {name[:200]!r}"
        connection.principal = principal
        return ""


PLAIN: Final = Door()
"""That of `listen.kafka`."""
