"""If a node must not go down, `evenkeel rolling-restart` says why and what to do."""

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.rolling import RollingError, rolling_restart
from cluster.state import NodeState


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (NodeState.PAUSED, "node 2 is paused: evenkeel resume 2"),
        (NodeState.KILLED, "node 2 is not running: evenkeel restart 2"),
        (NodeState.EXITED, "node 2 is not running: evenkeel restart 2"),
    ],
)
def test_a_node_that_does_not_answer_is_named_with_the_command_that_helps(
    state: NodeState, words: str
) -> None:
    spec: Any = SimpleNamespace(nodes=[SimpleNamespace(id=number) for number in (1, 2, 3)])
    states = {1: NodeState.RUNNING, 2: state, 3: NodeState.RUNNING}
    running: Any = SimpleNamespace(
        nodes={number: SimpleNamespace(state=one) for number, one in states.items()}
    )
    with pytest.raises(RollingError, match=words):
        rolling_restart(spec, running, lambda _line: None)
