"""Who the user is to nodes' HTTP ports: a file, never an option.

`--command-config FILE`, the file of the context, or the variable EVENKEEL_COMMAND_CONFIG. It is the
file that Kafka's tools have, since users and passwords are the same; some names are of HTTP alone
and come first:

    http.username, http.password          or sasl.username, sasl.password
    http.ssl.ca.location                  or ssl.ca.location: authorities to trust for https://
    http.token.file                       a node's http.json, for a node of this machine
    http.passwords.without.tls            true: allow it to another machine, in the clear
"""

import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cli.clusters.contexts import ContextError
from cluster import access
from cluster.access import HttpsAddress, Way
from evenkeel import properties
from evenkeel.errors import ConfigurationError
from runtime.config.fields import Address

VARIABLE: Final = "EVENKEEL_COMMAND_CONFIG"
OTHERS_MAY: Final = 0o077
IN_THE_CLEAR: Final = "http.passwords.without.tls"


def use(addresses: Sequence[Address], options: Any, of_context: Path | None) -> None:  # noqa: ANN401 (argparse's)
    """From now on these addresses are asked as the user says.

    Raises:
        ContextError: the file cannot be used.
    """
    given = getattr(options, "command_config", None) or of_context
    path = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if path is None:
        return
    try:
        found = properties.read(path)
        mode = stat.S_IMODE(path.stat().st_mode)
    except ConfigurationError as error:
        raise ContextError(str(error)) from error
    if _password(found) and mode & OTHERS_MAY:
        raise ContextError(f"{path}: others than its owner may read the password; chmod 600 {path}")
    use_settings(addresses, found, str(path))


def use_settings(addresses: Sequence[Address], found: Mapping[str, str], said: str) -> None:
    """The same with what such a file says; `said` names it in errors.

    Raises:
        ContextError: the settings cannot be used.
    """
    if found:
        way = _way(found, said)
        _check(said, addresses, way, found)
        access.remote_nodes(addresses, way)


def _password(found: Mapping[str, str]) -> str:
    return found.get("http.password") or found.get("sasl.password", "")


def _way(found: Mapping[str, str], said: str) -> Way:
    user = found.get("http.username") or found.get("sasl.username", "")
    password = _password(found)
    token_file = found.get("http.token.file")
    if token_file:
        return access.read(Path(token_file))
    authorities = found.get("http.ssl.ca.location") or found.get("ssl.ca.location") or None
    try:
        tls = ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise ContextError(f"{said}: {authorities} cannot be used: {error.strerror}") from error
    header = access.basic(user, password) if user and password else ""
    return Way(authorization=header, tls=tls)


def _check(said: str, addresses: Sequence[Address], way: Way, found: Mapping[str, str]) -> None:
    for address in addresses:
        plain = not isinstance(address, HttpsAddress) and not address.is_loopback
        if plain and way.authorization and found.get(IN_THE_CLEAR) != "true":
            raise ContextError(
                f"http://{address}: the password of {said} would cross the network in the clear; "
                f"write https://{address}, or {IN_THE_CLEAR}=true in that file"
            )
