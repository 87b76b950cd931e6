"""All targets."""

from tests.fuzz.broker_targets import broker_targets
from tests.fuzz.config_targets import config_targets
from tests.fuzz.engine import Target
from tests.fuzz.log_targets import log_targets
from tests.fuzz.peer_targets import peer_targets
from tests.fuzz.state_targets import state_targets
from tests.fuzz.strangers.http_targets import http_targets
from tests.fuzz.strangers.stranger_targets import stranger_targets
from tests.fuzz.wire_targets import wire_targets


def all_targets() -> list[Target]:
    """In the order of the layers, from the client's bytes to the operator's."""
    return [
        *wire_targets(),
        *stranger_targets(),
        *broker_targets(),
        *peer_targets(),
        *state_targets(),
        *log_targets(),
        *config_targets(),
        *http_targets(),
    ]


def targets_named(beginning: str) -> list[Target]:
    """All targets whose names begin so; the one that is named exactly, if there is one.

    Raises:
        ValueError: there is none; the message names those there are.
    """
    targets = all_targets()
    exact = [target for target in targets if target.name == beginning]
    found = exact or [target for target in targets if target.name.startswith(beginning)]
    if not found:
        known = ", ".join(target.name for target in targets)
        raise ValueError(f"no target {beginning!r}; there are {known}")
    return found


def target_named(name: str) -> Target:
    """The target of this name.

    Raises:
        ValueError: as `targets_named`.
    """
    return targets_named(name)[0]
