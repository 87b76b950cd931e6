"""Every target there is."""

from tests.fuzz.broker_targets import broker_targets
from tests.fuzz.config_targets import config_targets
from tests.fuzz.engine import Target
from tests.fuzz.log_targets import log_targets
from tests.fuzz.peer_targets import peer_targets
from tests.fuzz.state_targets import state_targets
from tests.fuzz.wire_targets import wire_targets


def all_targets() -> list[Target]:
    """In the order of the layers, from the client's bytes to the operator's."""
    return [
        *wire_targets(),
        *broker_targets(),
        *peer_targets(),
        *state_targets(),
        *log_targets(),
        *config_targets(),
    ]


def target_named(name: str) -> Target:
    """The target of this name.

    Raises:
        ValueError: there is none; the message names those there are.
    """
    targets = {target.name: target for target in all_targets()}
    if name not in targets:
        raise ValueError(f"no target {name!r}; there are {', '.join(targets)}")
    return targets[name]
