"""How commands log in: the file of `--command-config`, the one that a context keeps, the one that
the variable EVENKEEL_COMMAND_CONFIG names, or that of a secure cluster in this directory.

Such a file has Kafka's own names (wire/client_settings.py), so one that is there for Kafka's tools
does. The file of a context is a copy, `logins/NAME.properties` beside `contexts.json`; nobody but
its owner may read it, and a command refuses one that others may.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cli.clusters import contexts
from cli.clusters import target as chosen
from cli.clusters.contexts import ContextError
from evenkeel import properties

VARIABLE: Final = "EVENKEEL_COMMAND_CONFIG"
FILES: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.truststore.location",
    "ssl.keystore.location",
)
"""Settings that are paths: in a copy they have to mean the same from everywhere."""
SHOWN: Final = ("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", *FILES)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def of(options: Any) -> dict[str, str]:  # noqa: ANN401 (argparse's)
    """The settings of security for the cluster that is meant.

    Raises:
        ConfigurationError: if the file cannot be read.
        ContextError: if others may read the context's file.
    """
    if options.command_config is not None:
        return properties.read(options.command_config)
    own = chosen.of(options).command_config
    if own is not None:
        return kept(own)
    named = os.environ.get(VARIABLE)
    if named:
        return properties.read(Path(named))
    local = chosen.settings_file(options)
    return properties.read(local) if local else {}


def kept(path: Path) -> dict[str, str]:
    """A context's file.

    Raises:
        ContextError: if it is gone, or others may read it.
        ConfigurationError: if it is damaged.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ContextError(
            f"{path}, with which this context logs in: {error.strerror}; add the context again"
        ) from error
    if mode & _OTHERS:
        raise ContextError(f"others may read {path}: chmod 600 {path}")
    return properties.read(path)


def path_of(name: str, env: Mapping[str, str] = os.environ) -> Path:
    """The file of a context with this name."""
    return contexts.path(env).parent / "logins" / f"{name}.properties"


def keep(name: str, settings: Mapping[str, str], env: Mapping[str, str] = os.environ) -> Path:
    """Write the file of a context, which replaces an older one.

    Raises:
        ContextError: if it cannot be written.
    """
    whole = {
        key: str(Path(value).absolute()) if key.lower() in FILES and value else value
        for key, value in settings.items()
    }
    path = path_of(name, env)
    draft = path.with_name(f"{name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(properties.written(whole))
        draft.replace(path)
    except OSError as error:
        raise ContextError(f"{path} cannot be written: {error.strerror}") from error
    return path


def forget(name: str, env: Mapping[str, str] = os.environ) -> None:
    """Delete the file of a context, if there is one."""
    path_of(name, env).unlink(missing_ok=True)


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """What may be shown of a file: no passwords, and no setting that may have one."""
    return {key: settings[key] for key in SHOWN if key in settings}
