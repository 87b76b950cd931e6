"""Builds what proves who a node's clients are, from its settings."""

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from balancer.registry.registry import Registry
from balancer.registry.security import Credentials
from broker.security.authentication import Authentication, AuthenticationConfig
from broker.security.exchanges import OAUTHBEARER
from broker.security.oauth import OauthExchange
from broker.security.token_keys import KeysError
from broker.security.tokens import TokenRules
from broker.security.users import FILE_BYTES_MAX, Users, parse_users
from paxos.ids import Now
from runtime.config.config import Config
from runtime.config.fields import ConfigError, show
from runtime.config.oauth import OauthSection
from runtime.oauth.keys import File, InThread, Keys, Source, Url
from runtime.system.journal import Journal
from storage.disk.threads import SYSTEM_THREADS

_S: Final = 1_000_000_000


def authentication(
    config: Config,
    registry: Registry,
    new_id: Callable[[], bytes],
    now: Callable[[], Now],
    journal: Journal,
) -> Authentication | None:
    """None: no listener asks clients for a name and a proof of it.

    Raises:
        ConfigError: the file of first users, or that of keys, cannot be used.
    """
    if not any(one.security.sasl for one in config.for_clients):
        return None
    section = config.security
    offered = AuthenticationConfig(
        mechanisms=section.sasl_mechanisms,
        plain_without_tls=section.plain_without_tls,
        tokens_without_tls=config.oauth.without_tls,
        reauth_ns=section.reauth_s * _S,
    )
    found = users(config, registry)
    keys, exchange = _token_keys(config, journal), None
    if keys is not None:
        exchange = partial(OauthExchange, _token_rules(config.oauth), keys, now)
    return Authentication(
        offered, found, lambda: (new_id() + new_id()).hex().encode(), exchange, keys
    )


def users(config: Config, registry: Registry) -> Users:
    """Who may log in with a password.

    Raises:
        ConfigError: the file of first users cannot be used.
    """
    path = config.security.bootstrap_users_file
    return Users(lambda: registry.security, {} if path is None else first_users(path))


def _token_rules(section: OauthSection) -> TokenRules:
    return TokenRules(
        issuer=section.issuer,
        audiences=section.audience,
        algorithms=section.algorithms,
        principal_claim=section.principal_claim,
        scopes=section.scope,
        scope_claim=section.scope_claim,
        clock_skew_s=section.clock_skew_s,
    )


def _token_keys(config: Config, journal: Journal) -> Keys | None:
    """The keys that tokens are signed with; None: tokens are not asked for. A file is read at once,
    a URL in a thread of its own: its answer may take seconds, and nothing else waits for it. (No
    simulated world has tokens, so the threads are the system's.)

    Raises:
        ConfigError: the file cannot be used.
    """
    section = config.oauth
    if OAUTHBEARER not in config.security.sasl_mechanisms:
        return None
    if section.jwks_file is None:
        refresh_s, trusted = section.jwks_refresh_s, section.jwks_authorities
        source: Source = Url(section.jwks_url, refresh_s, SYSTEM_THREADS.monotonic, trusted)
    else:
        source = File(section.jwks_file)
    keys = Keys(source, journal, InThread("token-keys", SYSTEM_THREADS))
    if section.jwks_file is not None:
        try:
            keys.read_now()
        except KeysError as error:
            why = f"oauth.jwks_file = {show(str(section.jwks_file))}: {error}"
            raise ConfigError([why]) from error
    return keys


def first_users(path: Path) -> Credentials:
    """The users of a file that only its owner can read.

    Raises:
        ConfigError: it cannot be read, others can read it, or it has something else in it.
    """
    where = f'security.bootstrap_users_file = "{path}"'
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(FILE_BYTES_MAX + 1)
        if mode & 0o077:
            raise ConfigError([f"{where}: others than its owner may read it; chmod 600 {path}"])
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError([f"{where}: it has more than {FILE_BYTES_MAX} bytes"])
        return parse_users(data.decode())
    except OSError as error:
        raise ConfigError([f"{where}: {error.strerror}"]) from error
    except ValueError as error:
        raise ConfigError([f"{where}: {error}"]) from error
