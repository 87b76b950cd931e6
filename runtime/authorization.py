"""Builds a node's authorizer from its settings."""

from collections.abc import Callable, Mapping

from balancer.registry.registry import Registry
from broker.security.audit import AuditLog
from broker.security.authorizer import Authorizer
from paxos.ids import Now
from runtime.config.config import Config
from runtime.config.fields import ConfigError, show
from runtime.config.security import ACL
from runtime.system.audit_file import audit_writer
from runtime.system.journal import Journal


def authorizer(
    config: Config, registry: Registry, now: Callable[[], Now], journal: Journal
) -> Authorizer | None:
    """None: everybody may do everything.

    Raises:
        ConfigError: the audit log cannot be written.
    """
    section = config.security
    if section.authorizer != ACL:
        return None
    path = section.audit_path
    write = in_journal(journal)
    if path is not None:
        try:
            write = audit_writer(path, config.node.id)
        except OSError as error:
            why = f"security.audit_log = {show(str(path))}: {error.strerror}"
            raise ConfigError([why]) from error
    audit = AuditLog(write, now, grants=section.audit_grants)
    return Authorizer(registry, section.super_user_names, audit)


def in_journal(journal: Journal) -> Callable[[Mapping[str, object]], None]:
    """Writes entries of an audit log into the node's own log."""

    def write(entry: Mapping[str, object]) -> None:
        fields = {key: value for key, value in entry.items() if key not in ("event", "time_ms")}
        journal.warning(f"access {entry['event']}", **fields)

    return write
