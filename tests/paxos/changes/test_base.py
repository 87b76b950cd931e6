"""A replica that starts from a base: its own after a restart, or one it installs from a peer."""

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxos import base as bases
from paxos import entry as entries
from paxos.base import Base, BaseError
from paxos.changes import handover
from paxos.changes.rejoin import distrust
from paxos.entry import NOOP, BeMaster, Config, Steal
from paxos.ids import BALLOT_ZERO, MS, NOBODY, Epoch, Incarnation, NodeId, Slot
from paxos.liveness import mastership
from paxos.messages import (
    Accepted,
    Behind,
    Learn,
    Learned,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    Trimmed,
)
from paxos.proposer import Role
from paxos.replica import Replica
from paxos.state.core import Recovered
from paxos.step import FetchState, LearnedRecord, Step, VotingRecord
from paxos.timing import WINDOW_MAX
from tests.paxos.core import (
    GROUP,
    LIFE,
    START_NS,
    Member,
    accept,
    ballot,
    member,
    messages,
    some,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "base-1.hex"
EXAMPLE = Base(
    slot=Slot(77),
    chain=0xDEADBEEF,
    members=(NodeId(1), NodeId(2), NodeId(5)),
    configured=Slot(12),
    holder=NodeId(2),
    incarnation=Incarnation(9),
    ver=Slot(70),
    since=Slot(60),
    epoch=Epoch(4),
    expires_wall_ns=1_234_567_890_123,
    renewals=3,
)


def peers_base(slot: int, *, holder: int = 1, life: int = 1, since: int = 0) -> Base:
    """The base of a group of 0, 1 and 2 whose lease has 3 s to go."""
    ver = Slot(since or slot)
    return Base(
        slot=Slot(slot),
        chain=4711,
        members=(NodeId(0), NodeId(1), NodeId(2)),
        configured=Slot(0),
        holder=NodeId(holder),
        incarnation=Incarnation(life),
        ver=ver,
        since=ver,
        epoch=Epoch(1),
        expires_wall_ns=START_NS + 3_000 * MS,
        renewals=0,
    )


def in_life(life: int, recovered: Recovered | None = None) -> Member:
    """Node 0 in the given incarnation; the others remember nothing of it."""
    one = member(incarnation=life, recovered=recovered)
    for node in (1, 2):
        one.give(node, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, Incarnation(life)))
    return one


def install(one: Member, base: Base) -> Step:
    step = Step()
    one.replica.install(one.now, base, step)
    return step


def master_of_slot_1() -> Member:
    one = member()
    one.lead()
    mastership.propose_lease(one.replica, one.now, Step())
    one.accepted(1, 0, 1)
    assert one.replica.acting(one.now)
    return one


# -- bytes ------------------------------------------------------------------------------------


def test_its_bytes_are_those_of_version_1() -> None:
    assert bases.encode(EXAMPLE).hex() == GOLDEN.read_text().strip()
    assert bases.decode(bytes.fromhex(GOLDEN.read_text())) == EXAMPLE


@given(st.binary(max_size=120))
def test_noise_is_no_base(noise: bytes) -> None:
    with pytest.raises(BaseError):
        bases.decode(noise)


def test_every_damaged_byte_gives_a_base_or_its_error() -> None:
    data = bases.encode(EXAMPLE)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x81
        try:
            back = bases.decode(bytes(damaged))
        except BaseError:
            continue
        assert bases.encode(back) == bytes(damaged)
    for size in range(len(data)):
        with pytest.raises(BaseError):
            bases.decode(data[:size])


@pytest.mark.parametrize(
    "changes",
    [
        {"slot": Slot(0)},
        {"members": ()},
        {"members": (NodeId(2), NodeId(1))},
        {"members": (NodeId(1), NodeId(1))},
        {"configured": Slot(78)},
        {"ver": Slot(78)},
        {"since": Slot(71)},
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    changed = attrs.evolve(EXAMPLE, **changes)  # type: ignore[arg-type] # by their names
    with pytest.raises(BaseError):
        bases.decode(bases.encode(changed))


# -- restart ----------------------------------------------------------------------------------


def log() -> list[entries.Entry]:
    three = (NodeId(0), NodeId(1), NodeId(3))
    lease = BeMaster(NodeId(1), LIFE, Slot(0), START_NS + 3_000 * MS)
    again = BeMaster(NodeId(1), LIFE, Slot(2), START_NS + 4_000 * MS)
    change = entries.config(Config((NodeId(0), NodeId(1), NodeId(2), NodeId(3))))
    return [
        some("a"),
        entries.be_master(lease),
        change,
        entries.config(Config(three)),
        entries.be_master(again),
        some("b"),
    ]


def replayed(base: Base | None, chosen: list[entries.Entry]) -> Member:
    one = member(recovered=Recovered(base=base))
    start = 1 if base is None else base.slot + 1
    fresh = Replica(
        GROUP,
        NodeId(0),
        LIFE,
        (NodeId(0), NodeId(1), NodeId(2)),
        one.replica.timing,
        one.replica.election.dice,
        heard={},
        incarnations={},
        recovered=Recovered(base=base),
    )
    for slot, entry in enumerate(chosen, start=start):
        fresh.replay(one.now, Slot(slot), entry)
    fresh.replayed(one.now, Step())
    one.replica = fresh
    return one


@pytest.mark.parametrize("at", range(1, 7))
def test_a_restart_from_a_base_knows_what_a_whole_replay_knows(at: int) -> None:
    whole = replayed(None, log())
    base = replayed(None, log()[:at]).replica.base()
    back = replayed(bases.decode(bases.encode(base)), log()[at:])
    assert back.replica.base() == whole.replica.base()
    assert back.replica.members == (0, 1, 3)
    assert back.replica.acceptor.recorded == 6
    ours, theirs = back.replica.lease, whole.replica.lease
    assert ours.deadline_boot_ns == theirs.deadline_boot_ns
    assert back.replica.chain.at(Slot(at)) == whole.replica.chain.at(Slot(at))
    assert back.replica.chain.at(Slot(max(0, at - 1))) in (0, None)


def test_a_restart_gets_no_master_from_its_own_lease() -> None:
    """R11: a lease in a base belongs to an earlier incarnation, as a replayed one does."""
    one = in_life(2, Recovered(base=peers_base(9, holder=0)))
    assert not one.replica.acting(one.now)
    assert one.replica.lease.holder == 0
    assert messages(one.tick().after, Prepare)  # but it may take it again at once


# -- install ----------------------------------------------------------------------------------


def test_it_goes_on_behind_the_base() -> None:
    one = member()
    one.give(1, accept(3, 1, 8, some("below")))
    one.give(1, accept(3, 1, 11, some("above")))
    one.give(2, Learned(GROUP, Slot(10), (some("ten"),)))
    step = install(one, peers_base(9))
    replica = one.replica
    assert [done.slot for done in step.applied] == [10]  # what waited for it
    assert list(replica.acceptor.votes) == [11]  # a vote above the base is its own
    assert replica.acceptor.promised == ballot(3, 1)
    assert replica.lease.holder == 1
    assert messages(one.give(2, Prepare(GROUP, ballot(9, 2), Slot(9))).before, Behind)
    assert messages(one.give(2, Prepare(GROUP, ballot(9, 2), Slot(11))).after, Promise)


def test_an_older_base_is_ignored() -> None:
    one = master_of_slot_1()
    before = one.replica.base()
    for slot in (1, 1):
        assert not one.replica.install(one.now, attrs.evolve(peers_base(slot)), Step())
    assert one.replica.base() == before
    assert one.replica.acting(one.now)


@pytest.mark.parametrize("life", [1, 2])
def test_nobody_acts_on_a_lease_it_finds_in_a_base(life: int) -> None:
    """R11: even the incarnation that the lease names has to renew it before it acts."""
    one = in_life(2)
    install(one, peers_base(9, holder=0, life=life))
    assert not one.replica.acting(one.now)
    one.tick()  # ... but may prepare at once: nobody else can have the lease
    assert one.replica.proposer.role is Role.PREPARING
    mine = one.replica.proposer.ballot
    one.give(0, Promise(GROUP, mine, ()))
    one.give(1, Promise(GROUP, mine, ()))
    one.tick(1_100)  # at the latest when a renewal is due
    one.accepted(10, 0, 1)
    assert one.replica.acting(one.now)


def test_a_ballot_is_never_taken_over() -> None:
    """R5, R6: the base contains the Steal to us, but we still prepare a ballot of our own."""
    one = member()
    install(one, peers_base(9, holder=0))
    assert one.replica.proposer.role is Role.FOLLOWER
    assert one.replica.proposer.ballot == BALLOT_ZERO


def test_our_own_lease_goes_on_if_the_base_has_no_other() -> None:
    """If the wall clock was set back in between, our own clock would give the lease a later end
    (R12)."""
    one = master_of_slot_1()
    deadline = one.replica.lease.deadline_boot_ns
    own = one.replica.base()
    one.now_ns += 100 * MS
    install(one, attrs.evolve(own, slot=Slot(9), chain=1))
    assert one.replica.lease.deadline_boot_ns == deadline
    assert one.replica.acting(one.now)
    assert one.replica.proposer.role is Role.FOLLOWER


def test_the_suspension_ends_when_its_slot_is_covered() -> None:
    """R7: the lease of the base shows what became of the Steal."""
    one = master_of_slot_1()
    one.give(1, Progress(GROUP, Slot(1), Slot(1), BALLOT_ZERO, LIFE))
    handover.begin(one.replica, one.now, NodeId(1), LIFE)
    handover.try_to_send(one.replica, one.now, Step())
    assert one.replica.suspended == 2
    install(one, peers_base(9, holder=1, since=2))
    assert one.replica.suspended == 0
    assert one.replica.handover is None
    assert not one.replica.acting(one.now)


def test_a_suspension_beyond_the_base_goes_on() -> None:
    one = master_of_slot_1()
    for slot in (2, 3):
        one.place(some("x"))
        one.accepted(slot, 0, 1)
    handover.begin(one.replica, one.now, NodeId(1), LIFE)
    handover.try_to_send(one.replica, one.now, Step())
    assert one.replica.suspended == 4
    assert not one.replica.install(one.now, peers_base(3, holder=0, since=1), Step())
    assert one.replica.suspended == 4


def test_what_it_has_in_flight_is_given_up() -> None:
    one = master_of_slot_1()
    one.place(some("x"))
    step = install(one, peers_base(9))
    assert one.replica.proposer.role is Role.FOLLOWER
    assert not one.replica.proposer.in_flight
    assert any(notice.what == "stepped-down" for notice in step.notices)
    assert not messages(one.give(1, Accepted(GROUP, ballot(1, 0), Slot(2))).before)


def test_a_steal_behind_the_base_is_applied_live() -> None:
    """Entries above the base are applied as usual; the CAS is against the lease of the base
    (R8)."""
    one = member()
    gift = ballot(5, 1)
    expires_ns = START_NS + 3_000 * MS
    stolen = entries.steal(Steal(NodeId(1), NodeId(0), LIFE, gift, Slot(9), expires_ns))
    one.give(2, Learned(GROUP, Slot(10), (stolen,)))
    install(one, peers_base(9))
    assert one.replica.acting(one.now)
    assert one.replica.proposer.ballot == gift


# -- a peer's log is trimmed ------------------------------------------------------------------


def test_who_is_told_that_the_log_is_gone_fetches_the_state() -> None:
    one = member()
    one.give(1, Progress(GROUP, Slot(500), Slot(500), BALLOT_ZERO, LIFE))
    assert messages(one.tick(400).before, Learn)
    step = one.give(1, Trimmed(GROUP, Slot(300), Slot(500)))
    assert step.fetch == [FetchState(GROUP, NodeId(1))]
    install(one, peers_base(299))
    assert not one.give(1, Trimmed(GROUP, Slot(300), Slot(500))).fetch  # the log reaches us again


def test_a_prepare_from_below_a_trimmed_log_ends_in_a_transfer() -> None:
    """ADR 3, Consequences: after Behind, Learn, Trimmed and FetchState it can win an election."""
    one = member()
    one.prepare()
    mine = one.replica.proposer.ballot
    step = one.give(1, Behind(GROUP, mine, Slot(500)))
    assert messages(step.before, Learn)
    assert one.give(1, Trimmed(GROUP, Slot(300), Slot(500))).fetch
    install(one, peers_base(500))
    one.lead()
    assert one.replica.proposer.role is Role.LEADER


def test_who_fetches_the_state_stands_for_no_election() -> None:
    """It hears the others and is only behind: its ballots would disturb those who are not."""
    one = member()
    for _ in range(20):
        for node in (1, 2):
            one.give(node, Progress(GROUP, Slot(500), Slot(500), BALLOT_ZERO, LIFE))
            one.give(node, Trimmed(GROUP, Slot(300), Slot(500)))
        assert not messages(one.tick(250).after, Prepare)
    for _ in range(20):  # it still hears how far they are, but nobody says that the log is trimmed
        for node in (1, 2):
            one.give(node, Progress(GROUP, Slot(500), Slot(500), BALLOT_ZERO, LIFE))
        if messages(one.tick(250).after, Prepare):
            break
    else:
        raise AssertionError("it never tries")


# -- rejoin -----------------------------------------------------------------------------------


def forgetful_at(bar: int) -> Member:
    one = member()
    distrust(one.replica, one.now, (), "a test", Step())
    for node in (1, 2):
        for applied in (0, bar + 1):
            voted = Slot(max(bar, applied))
            told = RejoinAnswer(GROUP, LIFE, ballot(7, 1), voted, Slot(applied))
            one.give(node, told)
    return one


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_base_beyond_the_bar_counts_as_applied(beyond: int) -> None:
    """All slots up to the base are decided; the base is durable, so they stay decided."""
    one = forgetful_at(20)
    step = install(one, peers_base(21 + WINDOW_MAX + beyond - 1))
    votes = [record.voting for record in step.persist if isinstance(record, VotingRecord)]
    assert votes == ([True] if beyond else [])
    assert one.replica.acceptor.promised == (ballot(7, 1) if beyond else BALLOT_ZERO)


def test_a_base_with_other_members_raises_the_bar() -> None:
    """ADR 22: a majority of the new members cannot tell what the old members decided before."""
    one = forgetful_at(20)
    base = attrs.evolve(peers_base(200), configured=Slot(199))
    install(one, base)
    assert one.replica.rejoin is not None
    for node in (1, 2):
        one.give(node, RejoinAnswer(GROUP, LIFE, ballot(7, 1), Slot(300), Slot(300)))
    one.give(1, Learned(GROUP, Slot(201), (NOOP,) * (WINDOW_MAX - 1)))
    assert one.replica.rejoin is not None
    step = one.give(1, Learned(GROUP, Slot(200 + WINDOW_MAX), (NOOP,)))
    assert one.replica.rejoin is None
    assert any(isinstance(record, VotingRecord) for record in step.persist)


def test_what_it_learns_afterwards_is_recorded_above_the_base() -> None:
    one = member()
    install(one, peers_base(9))
    (record,) = one.give(1, Learned(GROUP, Slot(10), (NOOP,))).persist
    assert isinstance(record, LearnedRecord)
    assert record.applied == 9
    assert one.replica.acceptor.recorded == 9


def test_nobody_holds_the_lease_of_a_base_without_one() -> None:
    base = attrs.evolve(peers_base(9), holder=NOBODY, ver=Slot(0), since=Slot(0))
    one = member()
    install(one, base)
    assert one.replica.lease.free(one.now, one.replica.timing.margin_ns)
