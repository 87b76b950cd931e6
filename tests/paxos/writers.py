"""Who may write which field of a replica. `test_writers.py` holds the source to it.

A class writes its own fields in its own methods. WRITERS lists the fields that other modules write,
and which modules these are. MOVES lists the methods through which others change an acceptor, a
proposer, a learner, a lease, a chain, or Core itself, and who may call each. Together they are
everything that can move a promise, a vote, the own slots, what is applied, and who may act.
"""

from collections.abc import Iterator, Mapping
from typing import Final

HOMES: Final[Mapping[str, str]] = {
    "Acceptor": "paxos.acceptor",
    "Proposer": "paxos.proposer",
    "InFlight": "paxos.proposer",
    "Learner": "paxos.learner",
    "Lease": "paxos.lease",
    "ChainHash": "paxos.chain",
    "Core": "paxos.state.core",
    "Handover": "paxos.state.handover",
    "Rejoin": "paxos.state.rejoin",
    "Help": "paxos.state.rejoin",
    "Peer": "paxos.state.peers",
    "Live": "paxos.liveness.live",
    "Election": "paxos.liveness.election",
    "Standstill": "paxos.liveness.standstill",
    "Questions": "paxos.liveness.questions",
    "Replica": "paxos.replica",
}
"""The classes that a replica is made of."""

WRITERS: Final[Mapping[str, tuple[str, ...]]] = {
    # Promises, votes, steals and membership changes depend on these.
    "Core.suspended": ("paxos.changes.handover",),
    "Core.settle_since": ("paxos.changes.handover",),
    "Core.handover": ("paxos.changes.handover",),
    "Handover.stage": ("paxos.changes.handover",),
    "Handover.sent_boot_ns": ("paxos.changes.handover",),
    "Core.changing": ("paxos.changes.membership",),
    "Core.rejoin": ("paxos.changes.rejoin",),
    "Core.incomplete_to": ("paxos.changes.rejoin",),
    "Core.verified": ("paxos.changes.rejoin",),
    "Core.witnesses": ("paxos.changes.rejoin",),
    "Core.alleged": ("paxos.changes.rejoin",),
    "Core.proven": ("paxos.changes.rejoin",),
    "Core.lost": ("paxos.changes.testimony",),
    "Core.doubt": ("paxos.changes.doubt",),
    "Core.hopeless": ("paxos.changes.doubt",),
    "Core.diverged": ("paxos.changes.doubt",),
    "Core.commit_due": ("paxos.replica",),
    # Shared by all groups of a node: when a node was last heard, and which life of it.
    "Core.heard": ("paxos.multigroup", "runtime.engine.engine"),
    "Core.incarnations": ("paxos.multigroup",),
    # What a replica knows of a peer.
    "Peer.witnessed": ("paxos.changes.witness",),
    "Peer.agreed": ("paxos.changes.doubt",),
    "Peer.differs": ("paxos.changes.doubt",),
    "Peer.ahead": ("paxos.changes.doubt",),
    "Peer.help": ("paxos.changes.rejoin",),
    "Peer.cannot_vote_boot_ns": ("paxos.changes.rejoin",),
    "Help.until": ("paxos.changes.rejoin",),
    "Peer.applied": ("paxos.liveness.progress",),
    "Peer.chosen": ("paxos.liveness.progress", "paxos.replica"),
    "Peer.progress_boot_ns": ("paxos.liveness.progress",),
    "Peer.reported_boot_ns": ("paxos.liveness.progress",),
    "Peer.questioned_boot_ns": (
        "paxos.changes.rejoin",
        "paxos.liveness.asking",
        "paxos.liveness.progress",
    ),
    "Peer.asked": ("paxos.liveness.asking",),
    "Peer.had_nothing_after": ("paxos.liveness.asking",),
    # Liveness: these may be wrong without harm.
    "Live.learn_at": ("paxos.liveness.asking",),
    "Live.progress_at": ("paxos.liveness.timers",),
    "Live.own_be_master": ("paxos.liveness.mastership",),
    "Live.rests_until_boot_ns": ("paxos.liveness.rests",),
    "Live.rests_until_wall_ns": ("paxos.liveness.rests",),
    "Live.trimmed_boot_ns": ("paxos.replica",),
    "Live.vote_missing": ("paxos.replica",),
    "Election.preferred": ("runtime.shell",),
    "Election.abstaining": (
        "broker.disk_watch",
        "runtime.balancing.balancing_loop",
        "simulator.script",
    ),
}

MOVES: Final[Mapping[str, tuple[str, ...]]] = {
    "Acceptor.promise_own": ("paxos.state.core",),
    "Acceptor.vote_own": ("paxos.state.core",),
    "Acceptor.on_prepare": ("paxos.replica",),
    "Acceptor.on_accept": ("paxos.replica",),
    "Acceptor.forget": ("paxos.changes.rejoin", "paxos.changes.snapshot", "paxos.replica"),
    "Acceptor.note_recorded": (
        "paxos.changes.rejoin",
        "paxos.changes.rewriting",
        "paxos.changes.snapshot",
        "paxos.replica",
    ),
    "Acceptor.stop_voting": ("paxos.changes.rejoin",),
    "Acceptor.vote_again": ("paxos.changes.rejoin",),
    "Proposer.start_preparing": ("paxos.state.core",),
    "Proposer.on_promise": ("paxos.replica",),
    "Proposer.lead": ("paxos.replica",),
    "Proposer.start_at": ("paxos.replica",),
    "Proposer.recovers": ("paxos.replica",),
    "Proposer.take_over": ("paxos.replica",),
    "Proposer.step_down": ("paxos.state.core",),
    "Proposer.close_at": ("paxos.changes.handover", "paxos.changes.membership", "paxos.replica"),
    "Proposer.place": ("paxos.state.core",),
    "Proposer.on_accepted": ("paxos.replica",),
    "Proposer.send_again": ("paxos.multigroup",),
    "Proposer.done": ("paxos.replica",),
    "InFlight.sent_again": ("paxos.liveness.timers",),
    "Learner.note_chosen": ("paxos.replica",),
    "Learner.note_claim": ("paxos.replica",),
    "Learner.claims_are": ("paxos.liveness.progress",),
    "Learner.add": ("paxos.replica",),
    "Learner.replay": ("paxos.replica",),
    "Learner.forget": ("paxos.changes.rejoin",),
    "Learner.skip": ("paxos.changes.snapshot",),
    "Learner.take_ready": ("paxos.replica",),
    "Lease.apply_be_master": ("paxos.replica",),
    "Lease.apply_steal": ("paxos.replica",),
    "Lease.restore": ("paxos.changes.snapshot",),
    "Lease.lapse": ("paxos.changes.snapshot",),
    "Lease.start_deadline": ("paxos.changes.snapshot", "paxos.replica"),
    "ChainHash.begin_after": ("paxos.changes.snapshot",),
    "ChainHash.extend": ("paxos.replica",),
    "Core.prepare": ("paxos.changes.handover", "paxos.liveness.mastership", "simulator.node.node"),
    "Core.place": (
        "paxos.changes.handover",
        "paxos.changes.membership",
        "paxos.changes.rejoin",
        "paxos.liveness.mastership",
        "paxos.replica",
        "simulator.node.node",
    ),
    "Core.step_down": (
        "paxos.changes.doubt",
        "paxos.changes.rejoin",
        "paxos.changes.snapshot",
        "paxos.liveness.mastership",
        "paxos.liveness.timers",
        "paxos.replica",
    ),
    "Core.flush_commit": ("paxos.liveness.timers", "paxos.replica"),
    "Core.call_off_handover": ("paxos.changes.handover", "paxos.strategies.older"),
    "Core.call_off_change": ("paxos.changes.membership",),
    "Core.become_members": ("paxos.changes.snapshot", "paxos.replica"),
    "Core.ask_also": ("runtime.balancing.hosting", "simulator.node.hosting"),
    "Core.see": ("paxos.replica",),
}

PARTS: Final[Mapping[str, str]] = {
    "acceptor": "Acceptor",
    "proposer": "Proposer",
    "flight": "InFlight",
    "learner": "Learner",
    "lease": "Lease",
    "chain": "ChainHash",
}
"""The name under which each class is used."""

SHARED: Final = ("heard", "incarnations")
"""Fields of Core that belong to MultiGroup: all its groups see one and the same."""


def markdown() -> Iterator[str]:
    """The tables as docs/reading-the-safety-argument.md shows them."""
    yield "| field | written by, beside its own class |"
    yield "|---|---|"
    for field, modules in WRITERS.items():
        yield f"| `{field}` | {', '.join(f'`{module}`' for module in modules)} |"
    yield ""
    yield "| move | made by |"
    yield "|---|---|"
    for move, modules in MOVES.items():
        yield f"| `{move}` | {', '.join(f'`{module}`' for module in modules)} |"
