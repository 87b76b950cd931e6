"""Every fault of issues 22 and 23, and of the sessions after: where it is looked for."""

from collections.abc import Mapping
from typing import Final

from paxos.ids import MS
from simulator.mutants.catalogue import MUTANTS as OF_PARTS
from simulator.mutants.planting import Mutant
from simulator.whole.hunts.hunting import Hunt
from simulator.whole.hunts.planted import PLANTED
from simulator.whole.mutants import MUTANTS as OF_NODES
from simulator.whole.options import Fault

S: Final = 1_000 * MS
KNOWN: Final[Mapping[str, Mutant]] = {**OF_PARTS, **OF_NODES, **PLANTED}

LEAN: Final = dict(operators=0, pipeliners=0, consumers=0, families=(), liars=0, writers=0)
"""A producer and a reader."""
BUSY: Final = dict(LEAN, producers=3, client_think_ns=20 * MS, client_window=4)
PIPELINES: Final = dict(
    LEAN,
    client_think_ns=10 * MS,
    client_window=4,
    segment_bytes=256 << 10,
    pipeliners=3,
    fault_gap_ns=400 * MS,
    lease_ms=1_500,
    groups=1,
    partitions=1,
    delay_min_ns=5 * MS,
    delay_max_ns=40 * MS,
    duration_ns=14 * S,
)
FAR: Final = dict(
    PIPELINES,
    client_window=12,
    fault_gap_ns=250 * MS,
    lease_ms=4_000,
    delay_min_ns=60 * MS,
    delay_max_ns=200 * MS,
)
"""Answers are under way for so long that masters move meanwhile."""
MOVING: Final = dict(PIPELINES, client_think_ns=20 * MS, segment_bytes=64 << 10, duration_ns=9 * S)
ORDERS: Final = dict(
    LEAN, operators=4, client_think_ns=50 * MS, fault_gap_ns=400 * MS, lease_ms=1_500
)
HELD: Final = dict(LEAN, operators=4, client_think_ns=50 * MS, lease_ms=1_500, duration_ns=26 * S)
TOLD: Final = dict(LEAN, duration_ns=26 * S, fault_gap_ns=100 * MS, groups=1)
MEMBERS: Final = dict(LEAN, consumers=3, duration_ns=14 * S, fault_gap_ns=300 * MS, groups=1)
FREEZING: Final = dict(LEAN, lease_ms=4_000, duration_ns=16 * S, fault_gap_ns=900 * MS)
FORKING: Final = dict(LEAN, duration_ns=18 * S, fault_gap_ns=300 * MS)
LYING: Final = dict(LEAN, duration_ns=14 * S, fault_gap_ns=150 * MS)
SQUATTED: Final = dict(LEAN, squatters=1, tight=True, producers=2)
DAMAGED: Final = dict(
    LEAN,
    producers=2,
    client_think_ns=40 * MS,
    client_window=4,
    duration_ns=15 * S,
    fault_gap_ns=450 * MS,
    tail_bytes=0,
    checkpoint_records=100,
)

_NO_TIME: Final = "computing in Python costs no simulated time"
_GIVEN_AWAY: Final = (
    "the node still gives its masters away, renews nothing meanwhile, and asks in vain for a "
    "ballot that its own disk does not take: it was seen to act for less than 1 s after it knew, "
    "and I11 allows 3 s"
)
_ORDERS: Final = {
    "change-overtakes": "in 2 worlds with orders held on their way to the registry (`HOLD`) its "
    "line ran 3513 times and 12 orders were answered as unknown; none came behind a later one",
    "deletions-forgotten": "its line ran 210 times in 2 worlds with orders held on their way to "
    "the registry (`HOLD`); no creation came behind a deletion",
    "decision-without-a-fence": "in 3 worlds what the giver of a group forwards was held 31 times "
    "(`HOLD_GIVER`), and 12 orders were answered as unknown; none came behind a later one. Who is "
    "not answered waits for 2 s, and a forward is refused after 3 s",
}
_ORDER: Final = (
    "an order has to be stuck on a link while its group comes and goes, and its client to undo it "
    "elsewhere meanwhile"
)
_NOBODY_TEACHES: Final = (
    "in 4 worlds with 5 such logs none applied more: who is hopeless asks nobody, and is taught by "
    "nobody who has not been asked"
)
_ANSWERS_SOON: Final = "other nodes tell a woken machine the time before it does anything"


def _hunt(
    point: str,
    name: str,
    *faults: Fault,
    changes: Mapping[str, object],
    seeds: int = 4,
    swarm: int | None = None,
    why_not: str = "",
) -> tuple[str, Hunt]:
    mutant, elsewhere = KNOWN[name], f"`{KNOWN[name].tests}`"
    return name, Hunt(
        point, mutant, frozenset(faults), changes, seeds, swarm, why_not, elsewhere=elsewhere
    )


HUNTS: Final[Mapping[str, Hunt]] = dict(
    [
        _hunt("22.1", "named-id-is-believed", Fault.KILL, changes=dict(LEAN, producers=3)),
        _hunt("22.2", "refusal-shuts-nothing", Fault.FULL_DISK, Fault.PLACES, changes=PIPELINES),
        *(
            _hunt("22.2", name, Fault.FULL_DISK, Fault.PLACES, changes=FAR)
            for name in ("lane-forgets-a-refusal", "lane-opens-at-once")
        ),
        _hunt(
            "22.2",
            "goes-round-the-forward",
            Fault.CUT_GIVER,
            changes=dict(MOVING, lease_ms=4_000),
            seeds=3,
            why_not="9 masters that gave their group away were cut off; its line ran 2588 times, "
            "and once commands waited while others were abroad",
        ),
        _hunt(
            "22.2",
            "guest-sent-on",
            Fault.CUT_GIVER,
            changes=dict(MOVING, lease_ms=4_000),
            seeds=2,
            why_not="its line ran 796 times, and no command of another node had to go back: guests "
            "are proposed in the round in which they come",
        ),
        _hunt(
            "22.2",
            "told-behind-the-unknown",
            Fault.CUT_TAKER,
            Fault.PLACES,
            changes=MOVING,
            why_not="who has voted for the second of two commands has voted for the first, unless "
            "its link was reset between them, and another master begins before that is mended",
        ),
        _hunt("22.3", "records-stored-unread", changes=dict(LEAN, vandals=1)),
        _hunt(
            "22.4",
            "offsets-come-back",
            Fault.PLACES,
            changes=dict(reborn=True, duration_ns=12 * S, operators=0),
        ),
        _hunt("22.4", "nobody-is-let-in", changes=dict(LEAN, reborn=True, duration_ns=14 * S)),
        _hunt("22.4", "epochs-begin-anew", changes=dict(LEAN, reborn=True)),
        _hunt(
            "22.4",
            "let-in-at-once",
            Fault.HOLD_GIVER,
            changes=dict(
                FAR,
                pipeliners=0,
                newcomers=4,
                client_window=4,
                client_think_ns=15 * MS,
                lease_ms=1_500,
                delay_min_ns=10 * MS,
                delay_max_ns=40 * MS,
            ),
        ),
        _hunt(
            "22.5",
            "lost-forwards-are-refused",
            Fault.CUT_TAKER,
            changes=dict(MOVING, delay_min_ns=100_000, delay_max_ns=4 * MS, partitions=2),
        ),
        _hunt(
            "22.5",
            "late-forwards-are-refused",
            Fault.HOLD_ANSWERS,
            changes=dict(
                MOVING, patience_ms=5_000, answer_ms=4_500, producers=0, duration_ns=14 * S
            ),
        ),
        *(
            _hunt(
                "22.5",
                name,
                Fault.CUT_TAKER,
                Fault.PLACES,
                Fault.SLOW_LINK,
                changes=dict(ORDERS, consumers=3),
                seeds=3,
                why_not=_ORDERS.get(name, _ORDER),
            )
            for name in (
                "decision-without-a-fence",
                "decision-of-an-earlier-master",
                "everything-there-is-then",
                "change-overtakes",
                "change-without-a-fence",
                "deletions-forgotten",
            )
        ),
        *(
            _hunt("22.5", name, Fault.CUT_ONE_WAY, changes=dict(ORDERS, consumers=3, lease_ms=800))
            for name in ("unknown-called-refused", "chosen-called-refused")
        ),
        *(
            _hunt("22.6", name, changes=dict(operators=1, tail_bytes=0, duration_ns=12 * S))
            for name in ("time-of-the-batch", "times-of-the-log-only")
        ),
        *(
            _hunt(
                "22.7",
                name,
                Fault.MEMBER_DIES,
                Fault.PAUSE,
                changes=dict(MEMBERS, lease_ms=4_000, consumers=4, duration_ns=20 * S),
                why_not="a coordinator has to stall again and again for less than its lease",
            )
            for name in ("session-begun-anew-by-a-stall", "graced-again-and-again")
        ),
        _hunt(
            "22.10",
            "session-begun-anew-by-a-move",
            Fault.MEMBER_DIES,
            Fault.PLACES,
            changes=dict(MEMBERS, consumers=5, duration_ns=20 * S, fault_gap_ns=200 * MS),
        ),
        _hunt(
            "22.10",
            "nothing-written-before-a-move",
            Fault.MEMBER_DIES,
            Fault.PLACES,
            changes=MEMBERS,
        ),
        _hunt("23.1", "log-read-on-the-loop", Fault.KILL, changes=LEAN),
        _hunt(
            "23.1",
            "questions-without-end",
            Fault.KILL,
            changes=BUSY,
            why_not="it costs computing time of whoever is asked, which the worlds do not charge; "
            "no entry is sent more than twelve times",
        ),
        _hunt(
            "23.2",
            "captives",
            Fault.CUT,
            changes=dict(LEAN, lease_ms=800, fault_gap_ns=2_500 * MS, duration_ns=30 * S),
            seeds=10,
        ),
        _hunt(
            "23.2, ADR 42",
            "blames-by-the-boot-clock",
            Fault.PAUSE,
            changes=dict(
                LEAN,
                lease_ms=4_000,
                fault_gap_ns=1_500 * MS,
                duration_ns=35 * S,
                delay_min_ns=270 * MS,
                delay_max_ns=430 * MS,
            ),
        ),
        _hunt("23.3", "mark-on-the-loop", changes=LEAN),
        *(
            _hunt(
                "23.3",
                name,
                Fault.HUNG_DISK,
                changes=dict(LEAN, duration_ns=30 * S, fault_gap_ns=2 * S, lease_ms=2_000),
                seeds=2,
                why_not=_GIVEN_AWAY,
            )
            for name in ("hung-master-stays", "hung-keeps-masters")
        ),
        _hunt("23.4", "difference-ignored", Fault.FORK, changes=FORKING),
        *(
            _hunt("23.4", name, Fault.FORK_APART, changes=dict(FORKING, duration_ns=20 * S))
            for name in ("doubt-ignored", "doubt-lifted-by-the-past")
        ),
        _hunt("23.4", "hopeless-and-taught", Fault.FORK, changes=FORKING, why_not=_NOBODY_TEACHES),
        _hunt(
            "23.6",
            "every-clock-is-trusted",
            Fault.CUT,
            Fault.WRONG_CLOCK,
            Fault.KILL,
            Fault.PLACES,
            changes=dict(FREEZING, fault_gap_ns=500 * MS),
            why_not="in these 4, and in 2 whose links take 150 to 400 ms, a clock was set wrong 74 "
            "times; at no look, five a second, did two nodes act for one group",
        ),
        *(
            _hunt(
                "23.6",
                name,
                Fault.FREEZE,
                Fault.RESET,
                changes=FREEZING,
                why_not=_ANSWERS_SOON,
            )
            for name in ("lost-link-ends-doubt", "stop-unnoticed")
        ),
        _hunt("23.8", "unfinished-uncounted", changes=SQUATTED),
        _hunt("23.8", "closed-keeps-memory", Fault.RESET, changes=SQUATTED),
        _hunt(
            "23.8",
            "the-gone-stay-counted",
            Fault.RESET,
            changes=dict(
                fault_gap_ns=200 * MS,
                sync_min_ns=20 * MS,
                sync_max_ns=60 * MS,
                families=("librdkafka",),
            ),
        ),
        _hunt(
            "23.12",
            "silent-hold-places",
            Fault.RESET,
            changes=dict(SQUATTED, squatters=2, fault_gap_ns=150 * MS, duration_ns=14 * S),
        ),
        _hunt("23.13", "forged-witness", Fault.WORDS, Fault.KILL, changes=LYING, seeds=6),
        _hunt("23.13", "any-round", Fault.WORDS, Fault.KILL, changes=LYING),
        *(
            _hunt("23.13", name, Fault.LIES, changes=TOLD)
            for name in (
                "forged-progress",
                "witness-of-anything",
                "word-believed-at-once",
                "life-that-forgets",
                "hearsay-spreads",
                "word-that-stays",
                "taught-unasked",
            )
        ),
        _hunt(
            "23.14",
            "state-within-a-round",
            Fault.LOST_DIRECTORY,
            Fault.KILL,
            changes=dict(
                BUSY,
                segment_bytes=64 << 10,
                checkpoint_records=100,
                fault_gap_ns=500 * MS,
                duration_ns=14 * S,
            ),
            why_not="the entries that it lacks have to come in the very round in which its state "
            "is saved",
        ),
        _hunt(
            "R14",
            "fetch-without-a-lease",
            Fault.PAUSE,
            Fault.CUT,
            changes=dict(LEAN, lease_ms=800, fault_gap_ns=400 * MS),
            why_not="no simulated time passes between its two looks at the lease",
        ),
        _hunt(
            "found by worlds",
            "damage-below-the-checkpoint",
            Fault.DAMAGE,
            Fault.KILL,
            changes=dict(DAMAGED, segment_bytes=1 << 20),
            seeds=6,
        ),
        _hunt(
            "found by worlds",
            "cold-damage-stays",
            Fault.DAMAGE,
            changes=dict(DAMAGED, segment_bytes=64 << 10),
            seeds=6,
        ),
        _hunt(
            "found by worlds",
            "founded-alone-judges-nobody",
            Fault.ADD_NODE,
            Fault.KILL,
            changes=dict(
                LEAN,
                nodes=1,
                replicas=1,
                fault_gap_ns=900 * MS,
                duration_ns=14 * S,
                replace_after_s=5,
            ),
        ),
        _hunt(
            "found by worlds",
            "any-directory-is-known",
            Fault.LOST_DIRECTORY,
            Fault.OLD_DIRECTORY,
            Fault.KILL,
            changes=dict(LEAN, producers=2, duration_ns=14 * S),
        ),
        _hunt(
            "found by worlds",
            "masters-told-once-a-second",
            changes=dict(LEAN, replicas=1, lease_ms=800, groups=3, duration_ns=14 * S),
        ),
        _hunt(
            "found by worlds",
            "asks-unheard",
            Fault.ADD_NODE,
            Fault.LOST_DIRECTORY,
            Fault.MOVE,
            changes=dict(LEAN, fault_gap_ns=700 * MS, duration_ns=14 * S),
            seeds=8,
            why_not="it took a node that is added while a directory is lost: world 72 of the swarm",
        ),
        _hunt(
            "found by worlds",
            "teachers-who-left",
            Fault.MOVE,
            Fault.OLD_DIRECTORY,
            Fault.LOST_DIRECTORY,
            changes=dict(LEAN, nodes=4, replicas=2, duration_ns=14 * S),
            seeds=8,
            why_not="it took a group of two new members and an old copy: world 12 of the swarm",
        ),
        _hunt(
            "found by worlds",
            "the-added-forget",
            Fault.MOVE,
            Fault.ADD_NODE,
            changes=dict(LEAN, nodes=4, fault_gap_ns=300 * MS, duration_ns=14 * S),
            why_not="it took two changes within a moment and a lost directory: seed 409 of worlds "
            "with these faults",
        ),
        _hunt(
            "found by worlds",
            "one-of-two-speaks-too-soon",
            Fault.LOST_DIRECTORY,
            Fault.OLD_DIRECTORY,
            Fault.KILL,
            changes=dict(
                LEAN, nodes=2, replicas=2, groups=2, fault_gap_ns=300 * MS, duration_ns=24 * S
            ),
            swarm=289,
            why_not="the other's directory has to be lost within a moment, and to hold a vote for "
            "an entry that it does not know to be chosen: world 289 of the swarm",
        ),
        _hunt(
            "found by worlds",
            "scrubs-what-is-not-written",
            Fault.HUNG_DISK,
            changes=dict(BUSY, segment_bytes=64 << 10, fault_gap_ns=400 * MS, duration_ns=18 * S),
            swarm=880,
            why_not="the scrubber has to come by while a disk hangs: worlds 718 and 880 of the "
            "swarm",
        ),
        _hunt(
            "found by worlds",
            "refused-until-the-clock-is-there",
            Fault.WRONG_CLOCK,
            Fault.OLD_DIRECTORY,
            Fault.KILL,
            changes=dict(LEAN, fault_gap_ns=400 * MS, duration_ns=14 * S),
            seeds=6,
            why_not="a node has to begin a life while its clock is hours ahead, and then to get an "
            "old copy: 1 in 10 clocks is that far off. World 732 was one; its draws have changed",
        ),
        _hunt(
            "found by reading",
            "who-left-speaks",
            Fault.MOVE,
            Fault.ADD_NODE,
            Fault.REMOVE_NODE,
            Fault.LOST_DIRECTORY,
            Fault.KILL,
            changes=dict(LEAN, nodes=4, fault_gap_ns=300 * MS, duration_ns=20 * S),
            seeds=6,
            why_not="who has left has to answer a node that lost its directory while those who "
            "have stayed are silent, and a promise has to be lost with it",
        ),
        _hunt(
            "found by hunts",
            "held-answers-are-contact",
            Fault.FLICKER,
            changes=dict(
                LEAN,
                consumers=2,
                producers=1,
                lease_ms=4_000,
                delay_min_ns=5 * MS,
                delay_max_ns=40 * MS,
                duration_ns=30 * S,
                fault_gap_ns=1_500 * MS,
            ),
        ),
        _hunt(
            "topics",
            "topics-unknown-elsewhere",
            changes=dict(
                LEAN, namers=1, client_think_ns=50 * MS, delay_min_ns=50_000, delay_max_ns=80 * MS
            ),
            why_not="a follower hears of a change in less time than a client needs to ask it",
        ),
    ]
)

NOT_PLANTED: Final[Mapping[str, str]] = {
    "22.2, large messages hold up leases": "links have no bandwidth in these worlds: "
    "`tests/runtime/peers`, `tests/exam/load/test_order.py`",
    "22.8, the client library; 22.9, hollow tests": "worlds run nodes, not the library: "
    "`tests/test_planted_bugs.py`",
    "22.11, KIP-848 commits under an older epoch": "no member of that kind is in these worlds: "
    "`tests/coordinator/test_assigned_commits.py`",
    "22.12 and 23.7, the command line": "worlds do not run it: `tests/cli`, `tests/cluster`",
    "23.1, bulk before heartbeats": "links have no bandwidth: `tests/runtime/peers`",
    "23.5, groups of one or two members and a flipped bit": "the tools would not take such a "
    "directory away, so worlds do not damage it: `tests/runtime/disk/test_damage_worlds.py`",
    "23.5, two old copies at once; VOTING without `applied`": "what is lost then may be lost: "
    "`tests/cluster`, `tests/runtime/disk/test_repair.py`",
    "23.9, one connection holds the loop": f"{_NO_TIME}: `tests/broker/requests/test_pipelines.py`",
    "23.10, requests over a limit": "simulated clients send none: `tests/broker/requests`",
    "23.11, descriptors": "a simulated machine has no limit of them: `tests/exam`",
}
