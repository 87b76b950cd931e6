"""Builds the HTTP port of a node: its routes, its TLS, and who may use it."""

import secrets
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.requests.context import Broker
from broker.security.audit import AuditLog
from broker.security.authorizer import Authorizer
from broker.security.decisions import Decision
from broker.security.principal import Principal
from broker.security.users import Users
from paxos.ids import Now
from runtime.authentication import users
from runtime.authorization import in_journal
from runtime.config.config import Config
from runtime.http import local
from runtime.http.access import UserAccess
from runtime.http.guard import Guard
from runtime.http.permissions import LOCAL, ByNames, ByRules, Permissions
from runtime.http.roles import OPERATIONS, Role
from runtime.http.server import HttpServer, Route
from runtime.http.sessions import Kind, Sessions
from runtime.network.tls_context import TlsContexts
from runtime.system.journal import Journal
from runtime.system.memory import Memory
from wire.acls import CLUSTER_NAME, ResourceType

SECRET_BYTES: Final = 32


def http_server(
    config: Config,
    routes: Mapping[tuple[str, str], Route],
    broker: Broker,
    contexts: TlsContexts | None,
    now: Callable[[], Now],
    journal: Journal,
    memory: Memory,
) -> HttpServer:
    """
    Raises:
        ConfigError: the file of first users cannot be used.
    """
    http = config.http
    access = None
    if http.asks:
        known = broker.authentication
        found = users(config, broker.registry) if known is None else known.users
        access = _access(config, found, broker.authorizer, now, journal)
    tls: Callable[[], ssl.SSLContext] | None = None
    if http.tls:
        assert contexts is not None, "runtime.config.http refuses that"
        tls = partial(contexts.of, "none")
    scheme = "https" if http.tls else "http"
    guard = Guard(config.listen.http_origin, scheme=scheme, any_name=http.asks)
    return HttpServer(routes, journal.bug, guard, memory, access, tls)


def _access(
    config: Config,
    known: Users,
    authorizer: Authorizer | None,
    now: Callable[[], Now],
    journal: Journal,
) -> UserAccess:
    http = config.http
    permissions: Permissions
    if authorizer is None:
        names = {
            Role.READ: http.names("readers"),
            Role.OPERATE: http.names("operators"),
            Role.ADMINISTER: http.names("administrators"),
        }
        permissions, audit = ByNames(names), AuditLog(in_journal(journal), now)
    else:
        permissions, audit = ByRules(authorizer), None

    def note(who: Principal, host: str, role: Role, api: str, decision: Decision) -> None:
        what = (who, host, OPERATIONS[role], ResourceType.CLUSTER, CLUSTER_NAME, api, decision)
        if authorizer is not None:
            authorizer.note(*what)
        elif audit is not None:
            audit.note(*what)

    sessions = Sessions(
        known.holds,
        lambda: now().boot_ns,
        partial(secrets.token_urlsafe, SECRET_BYTES),
        session_s=http.session_s,
    )
    return UserAccess(
        known,
        sessions,
        permissions,
        note,
        lambda: now().boot_ns,
        cookie=f"evenkeel-{config.node.id}",
        open_metrics=http.open_metrics,
    )


def open_to_this_machine(config: Config, server: HttpServer, journal: Journal) -> None:
    """Write down how this machine's administrator reaches the port. Without that file the node
    serves all the same."""
    directory = config.node.data_dir
    try:
        if not config.http.asks and not config.http.tls:
            local.remove(directory)
            return
        token = ""
        if isinstance(server.access, UserAccess):
            token, _ = server.access.sessions.begin(Kind.LOCAL, LOCAL, None)
        certificate = config.tls.certificate if config.http.tls else None
        local.write(directory, token=token, certificate=certificate)
    except OSError as error:
        where = str(directory / local.NAME)
        journal.error("the file for this machine's administrator", path=where, reason=str(error))
