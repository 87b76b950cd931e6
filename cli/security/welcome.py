"""What `evenkeel up` says of a secure cluster: how clients get in, in at most 80 columns."""

from collections.abc import Iterator

from cluster.security.clients import FOR_WHOM, ClientSettings
from cluster.security.directory import ADMINISTRATOR
from cluster.spec import ClusterSpec


def secured(spec: ClusterSpec, terminal: bool) -> list[str]:
    """Lines; the password is among them on a terminal only, for other output may be a log."""
    return [*_lines(spec, terminal), ""]


def _lines(spec: ClusterSpec, terminal: bool) -> Iterator[str]:
    directory = spec.security
    yield f"secure: TLS, {ADMINISTRATOR}'s password, and rules for everybody else (evenkeel acl)."
    password = directory.known_password()
    if not password:
        yield f"{directory.password} is gone: no settings for clients are written."
        return
    settings = ClientSettings(
        bootstrap=spec.bootstrap, authority=directory.authority, password=password
    )
    yield "settings for librdkafka and all that is made of it:"
    yield from (f"  {line}" for line in settings.shown(password=terminal).splitlines())
    yield "the same, as files that only you can read, in"
    yield f"  {directory.clients}:"
    yield from (f"  {name:<31}{whom}" for name, whom in FOR_WHOM.items())
    yield f"the console asks for {ADMINISTRATOR} and that password; tell browsers to believe"
    yield f"  {directory.authority}"
