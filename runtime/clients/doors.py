"""How the clients of a listener come in: plainly, or through TLS, with a certificate or without."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

import attrs

from broker.ports import Connection
from broker.security.listeners import DEFAULT, ClientListener
from broker.security.principal_mapping import PrincipalMapping, distinguished_name
from runtime.config.config import Config
from runtime.config.fields import Address, ConfigError
from runtime.config.http import open_http
from runtime.config.listeners import ListenerSettings
from runtime.config.peer_tls import insecure
from runtime.network.channel import Channel
from runtime.network.dataplane import Plane
from runtime.network.listener import OnAccept
from runtime.network.stream import Stream
from runtime.network.tls_channel import Handshakes, TlsChannel
from runtime.network.tls_context import Reloading, Submit, TlsContexts, TlsFiles, TlsFilesError
from runtime.network.tls_stream import TlsStream
from runtime.system.journal import Journal
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
            believed_by=self.tls.contexts.reloads_total,
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
        connection.certified = principal
        if connection.session is None:
            connection.principal = principal  # else SASL says who it is
        return ""


PLAIN: Final = Door()
"""That of `listen.kafka`."""


class Entrances:
    """All listeners for Kafka clients, with their doors."""

    def __init__(self, config: Config, plane: Plane, journal: Journal) -> None:
        """
        Raises:
            ConfigError: the files for TLS are wrong.
        """
        listeners = config.for_clients
        self._short = not config.listeners
        self.handshakes = Handshakes(plane)
        self.contexts = _contexts(config, journal)
        self._reloading: tuple[Reloading, ...] = ()
        mapping = PrincipalMapping(config.tls.principal_mapping)
        self.doors: list[tuple[ListenerSettings, Door]] = []
        for one in listeners:
            tls = None
            if one.security.tls:
                assert self.contexts is not None
                tls = TlsDoor(
                    contexts=self.contexts,
                    client_certificates=one.client_certificates,
                    handshakes=self.handshakes,
                    mapping=mapping,
                )
            self.doors.append((one, Door(one.of_connections, tls)))
        open_to_clients = (one.name for one in listeners if one.insecure)
        of_nodes = ("listen.peer",) * insecure(config.listen, config.peer_tls)
        self.insecure = (*open_to_clients, *of_nodes, *open_http(config.listen, config.http))
        """The listeners that other machines reach, and that prove nobody."""
        if self.insecure:
            journal.warning(
                "everyone who reaches these listeners may do what they are for",
                listeners=",".join(self.insecure),
                setting="security.insecure_listeners",
            )

    def looking(self, submit: Submit, *others: TlsContexts | None) -> Callable[[int], None]:
        """What to call about once a second, with the time, so that changed files are taken over;
        `others` are looked at, too."""
        all_of_them = (one for one in (self.contexts, *others) if one is not None)
        self._reloading = tuple(Reloading(one, submit) for one in all_of_them)

        def tick(boot_ns: int) -> None:
            for one in self._reloading:
                one.tick(boot_ns)

        return tick

    @property
    def on_hangup(self) -> Callable[[], None] | None:
        """What SIGHUP does: look at the files at once; None where there are none."""
        return self._hurry if self._reloading else None

    def _hurry(self) -> None:
        for one in self._reloading:
            one.hurry()

    @property
    def names(self) -> dict[str, str]:
        """The names of listeners, by how their settings are called; "" for the short form."""
        if self._short:
            return {"listen.kafka": ""}
        return {f"[[listeners]] {one.name}: bind": one.name for one, _ in self.doors}

    def ports(self, accept: "Accept") -> Iterator[tuple[str, Address, OnAccept]]:
        """Where to listen: how the setting is called, the address, and what takes connections."""
        for one, door in self.doors:
            where = "listen.kafka" if self._short else f"[[listeners]] {one.name}: bind"
            yield where, one.bind, partial(accept, door=door)


def _contexts(config: Config, journal: Journal) -> TlsContexts | None:
    wanted = {one.client_certificates for one in config.for_clients if one.security.tls}
    modes = sorted(wanted | ({"none"} if config.http.tls else set()))
    tls = config.tls
    if not modes or tls.certificate is None or tls.key is None:
        return None
    files = TlsFiles(
        certificate=tls.certificate,
        key=tls.key,
        client_authorities=tls.client_authorities,
        revoked=tls.revoked,
    )
    try:
        return TlsContexts(files, modes, journal)
    except TlsFilesError as error:
        raise ConfigError([str(error)]) from error


class Accept(Protocol):
    def __call__(self, sock: Stream, host: str, door: Door = PLAIN) -> None: ...
