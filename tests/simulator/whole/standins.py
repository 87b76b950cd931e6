"""Stand-ins for machines and nodes that report what a test wants; checkers treat them as whole
ones."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from paxos.ids import Ballot, GroupId, NodeId
from simulator.whole.hunts.hunting import small

NODES = tuple(map(NodeId, (1, 2, 3)))
GROUPS = tuple(map(GroupId, (1, 2)))


class _Process:
    running = True

    def runs(self) -> bool:
        return self.running


def _replica() -> Any:
    return SimpleNamespace(
        members=NODES,
        acting=lambda _now: False,
        learner=SimpleNamespace(chosen_to=0),
        acceptor=SimpleNamespace(promised=Ballot(1, NodeId(1))),
    )


class StandIn:
    """simulator.whole.host.Host, as far as checkers use it: a member of both groups."""

    def __init__(self, me: NodeId) -> None:
        self.me, self.address, self.life = me, int(me), 1
        self.process, self.why = _Process(), ""
        self.clock = SimpleNamespace(boot_ns=lambda true_ns: true_ns)
        replicas = {group: _replica() for group in GROUPS}
        multi = SimpleNamespace(replicas=replicas)
        contact = SimpleNamespace(cut_off_total=0)
        self.node: Any = SimpleNamespace(
            multi=multi,
            clock=SimpleNamespace(_offset=0, trust=SimpleNamespace(trusted=True)),
            clients=SimpleNamespace(connections=[]),
            registry=SimpleNamespace(groups=GROUPS),
            engine=SimpleNamespace(
                multi=multi,
                members=lambda _group: NODES,
                disk_health=SimpleNamespace(hung=False),
            ),
            shell=SimpleNamespace(
                gate=SimpleNamespace(contact=contact), not_ready=lambda: self.why
            ),
        )

    def replica(self, group: int) -> Any:
        return self.node.multi.replicas[GroupId(group)]


def standing_in(**changes: object) -> Any:
    """A world of three nodes in which nothing happens by itself."""
    return SimpleNamespace(
        options=small(1, **{"faults": frozenset(), "lease_ms": 1_000, **changes}),
        loop=SimpleNamespace(now_ns=0),
        statistics=Counter[str](),
        links=SimpleNamespace(cut=set(), slow={}),
        nodes={node: StandIn(node) for node in NODES},
        partition_logs=SimpleNamespace(logs={}),
        struck=[],
        clients=[],
        healed_ns=None,
        quiet=False,
    )
