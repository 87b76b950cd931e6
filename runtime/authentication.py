"""Builds what proves who a node's clients are, from its settings."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from balancer.registry.registry import Registry
from balancer.registry.security import Credentials
from broker.security.authentication import Authentication, AuthenticationConfig
from broker.security.users import FILE_BYTES_MAX, Users, parse_users
from runtime.config.config import Config
from runtime.config.fields import ConfigError

_S: Final = 1_000_000_000


def authentication(
    config: Config, registry: Registry, new_id: Callable[[], bytes]
) -> Authentication | None:
    """None: no listener asks clients for a name and a password.

    Raises:
        ConfigError: the file of first users cannot be used.
    """
    if not any(one.security.sasl for one in config.for_clients):
        return None
    section = config.security
    offered = AuthenticationConfig(
        mechanisms=section.sasl_mechanisms,
        plain_without_tls=section.plain_without_tls,
        reauth_ns=section.reauth_s * _S,
    )
    found = users(config, registry)
    return Authentication(offered, found, lambda: (new_id() + new_id()).hex().encode())


def users(config: Config, registry: Registry) -> Users:
    """Who may log in with a password.

    Raises:
        ConfigError: the file of first users cannot be used.
    """
    path = config.security.bootstrap_users_file
    return Users(lambda: registry.security, {} if path is None else first_users(path))


def first_users(path: Path) -> Credentials:
    """The users of a file that only its owner can read.

    Raises:
        ConfigError: it cannot be read, others can read it, or it has something else in it.
    """
    where = f'security.bootstrap_users_file = "{path}"'
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
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
