"""The engine: what it sends when, what it does when the disk fails, and what it forwards where."""

import errno

import pytest

from broker.config import IntakeConfig
from broker.proposals.commands import delete_records
from broker.proposals.intake import FIRST, ORDERED, Done, FailureReason, NotDone, Outcome
from paxos.entry import Buffer
from paxos.ids import MS, GroupId, Incarnation, NodeId
from paxos.messages import Accept, Accepted, Learn, Learned, Promise
from runtime.disk.log_server import SERVE_BYTES_MAX
from runtime.engine.forwarding import FORWARD_TIMEOUT_NS
from storage.errors import StorageFailed
from tests.runtime.engines import GROUP, Member, Net, command, why

NOWHERE = GroupId(99)


@pytest.fixture
def net() -> Net:
    return Net()


# -- the way of a command -------------------------------------------------------------------------


def test_a_command_is_chosen_applied_everywhere_and_answered(net: Net) -> None:
    master = net.elect(2)
    first, second = master.submit("one"), master.submit("two")
    net.advance(40)
    assert (first, second) == ([Done(b"1")], [Done(b"2")])
    for member in net.members.values():
        assert member.ledger.texts() == ["one", "two"]
    slots = {slot for slot, _ in master.ledger.lines}
    assert len(slots) == 1, "commands of one round share an entry"


def test_who_is_not_master_says_who_is(net: Net) -> None:
    net.elect(2)
    assert net[1].submit("x") == [NotDone(FailureReason.NOT_MASTER, NodeId(2))]
    assert net[1].submit("x", group=NOWHERE) == [NotDone(FailureReason.NOT_MASTER)]


def test_a_group_this_node_does_not_have_has_no_master_here(net: Net) -> None:
    engine = net[1].engine
    assert not engine.acting(NOWHERE)
    assert not engine.caught_up(NOWHERE)
    assert (engine.epoch(NOWHERE), engine.master(NOWHERE), engine.members(NOWHERE)) == (
        -1,
        None,
        (),
    )


def test_the_hooks_hear_of_masters_and_of_what_was_applied(net: Net) -> None:
    """The broker uses the first to open and close its coordinators, and the second to wake
    consumers."""
    before = [member.hooks.acting_changed for member in net.members.values()]
    master = net.elect(1)
    for member, count in zip(net.members.values(), before, strict=True):
        assert member.hooks.acting_changed > count
    master.hooks.applied.clear()
    master.submit("x")
    net.settle()
    assert master.hooks.applied == [{GROUP}]


def test_proposals_and_commands_are_counted(net: Net) -> None:
    master = net.elect(1)
    for _ in range(2):
        master.submit("x")
        master.submit("y")
        net.settle()
    statistics = master.engine.statistics
    assert (statistics.commands, statistics.proposals) == (4, 2)
    assert statistics.applied >= 2


def test_a_lease_that_ends_is_told_without_any_traffic(net: Net) -> None:
    """Cut off from everybody, the master stops acting by its own clock."""
    master = net.elect(1)
    net.cut(1, 2)
    net.cut(1, 3)
    told = master.hooks.acting_changed
    net.until(lambda: not master.acting())
    assert master.hooks.acting_changed > told


def test_commands_that_waited_for_room_go_as_soon_as_there_is_some() -> None:
    """No time passes here: applying makes room, and the next entry leaves in that round."""
    net = Net(intake=IntakeConfig(entry_bytes_max=1, undecided_bytes_max=1))
    master = net.elect(1)
    outcomes = [master.submit(str(number)) for number in range(10)]
    net.advance(10)
    assert [why(one) for one in outcomes] == ["done"] * 10
    assert master.engine.statistics.proposals == 10


def test_a_command_waits_for_company_and_not_for_ever() -> None:
    """paxos.batch_wait_ms: while others are under way, and only for that long."""
    net = Net(intake=IntakeConfig(batch_wait_ns=50 * MS))
    master = net.elect(1)
    net[2].writer.held = net[3].writer.held = True
    for name in ("alone", "waits", "is company"):
        master.submit(name)
        net.settle()
    assert master.engine.statistics.proposals == 1
    net.advance(40)
    assert master.engine.statistics.proposals == 1
    net.advance(20)
    assert master.engine.statistics.proposals == 2


def test_who_was_answered_together_is_proposed_together_again() -> None:
    """ADR 31: the first of them wait for the others, though nothing is under way."""
    net = Net()
    master = net.elect(1)
    first = submitted(net, master, 20)
    before = master.engine.statistics.proposals
    again = submitted(net, master, 18)
    assert master.engine.statistics.proposals == before, "it waits for one more"
    assert master.engine.group_commit.waits
    again += submitted(net, master, 1)
    assert master.engine.statistics.proposals == before + 1
    assert [why(one) for one in (*first, *again)] == ["done"] * 39


def test_who_does_not_ask_again_is_not_waited_for() -> None:
    net = Net()
    master = net.elect(1)
    submitted(net, master, 20)
    again = submitted(net, master, 5)
    assert again[0] == []
    net.advance(1)
    assert [why(one) for one in again] == ["done"] * 5


def test_nobody_waits_for_a_group_that_was_given_up() -> None:
    """The data plane makes rounds while something waits: that must end with the last waiting
    command."""
    net = Net()
    master = net.elect(1)
    submitted(net, master, 20)
    (waiting,) = submitted(net, master, 1)
    assert master.engine.group_commit.waits
    master.engine.remove_group(GROUP)
    master.engine.end_round()
    assert not master.engine.group_commit.waits
    assert len(waiting) == 1, "it is told"


def test_nobody_waits_where_that_is_switched_off() -> None:
    net = Net(intake=IntakeConfig(group_commit_ns=0))
    master = net.elect(1)
    submitted(net, master, 20)
    assert [why(one) for one in submitted(net, master, 1)] == ["done"]


def submitted(net: Net, master: Member, count: int) -> list[list[Outcome]]:
    outcomes = [master.submit(str(number)) for number in range(count)]
    net.settle()
    return outcomes


# -- commands taken one after another -------------------------------------------------------------


def test_commands_taken_in_a_round_share_an_entry_and_keep_their_order(net: Net) -> None:
    master = net.elect(2)
    outcomes = [master.take("a"), master.submit("b"), master.take("c"), master.take("d")]
    net.settle()
    assert outcomes == [[Done(b"%d" % number)] for number in (1, 2, 3, 4)]
    assert master.ledger.texts() == ["a", "b", "c", "d"]
    statistics = master.engine.statistics
    assert (statistics.commands, statistics.proposals) == (4, 1)


def test_a_command_is_not_taken_where_another_would_not_be(net: Net) -> None:
    net.elect(2)
    assert net[1].take("x") == [NotDone(FailureReason.NOT_MASTER, NodeId(2))]
    assert net[1].take("x", group=NOWHERE) == [NotDone(FailureReason.NOT_MASTER)]


def test_a_crowd_that_is_taken_is_bounded_like_any_queue() -> None:
    """The first of them, and every one that follows it without another check."""
    net = Net(intake=IntakeConfig(refuse_bytes_max=1000))
    master = net.elect(1)
    outcomes = [master.take("x" * 100) for _ in range(30)]
    refused = [one for one in outcomes if one]
    assert 0 < len(refused) < len(outcomes)
    assert {why(one) for one in refused} == {"overloaded"}
    net.settle()
    assert [why(one) for one in outcomes].count("done") == len(outcomes) - len(refused)


def test_a_full_disk_refuses_what_would_go_behind_a_command_that_may_pass(net: Net) -> None:
    master = net.elect(1)
    master.engine.disk_pressure.low = True
    deleted: list[Outcome] = []
    master.engine.submit(GROUP, delete_records(7, 3), deleted.append)
    assert why(master.take("x")) == "overloaded"
    net.settle()
    assert why(deleted) == "done"


def test_a_command_taken_behind_others_is_lost_with_the_lease_like_them(net: Net) -> None:
    """The lease ends between two commands of one round: neither is proposed."""
    master = net.elect(1)
    outcomes = [master.take("first")]
    net.cut(1, 2)
    net.cut(1, 3)
    net.system.advance(60_000 * MS)
    outcomes.append(master.take("second"))
    net.until(lambda: all(outcomes))
    assert [why(one) for one in outcomes] == ["not master"] * 2
    assert master.ledger.texts() == []


def test_a_command_for_a_group_that_was_given_up_in_this_round(net: Net) -> None:
    master = net.elect(1)
    first = master.take("first")
    master.engine.remove_group(GROUP)
    assert master.take("second") == [NotDone(FailureReason.NOT_MASTER)]
    assert why(first) == "not master", "and its queue with it"


# -- durable before visible -----------------------------------------------------------------------


def sent(net: Net, source: int, kind: type) -> int:
    return sum(1 for one in net.sent if one.source == source and type(one.message) is kind)


def test_a_vote_leaves_only_when_it_is_durable(net: Net) -> None:
    """The followers' disks are held: they have the Accept, and send nothing."""
    master = net.elect(1)
    net[2].writer.held = net[3].writer.held = True
    votes = sent(net, 2, Accepted) + sent(net, 3, Accepted)
    outcomes = master.submit("x")
    net.settle()
    assert sent(net, 2, Accepted) + sent(net, 3, Accepted) == votes
    assert outcomes == []
    net[2].writer.held = False
    net.settle()
    assert sent(net, 2, Accepted) + sent(net, 3, Accepted) == votes + 1
    assert why(outcomes) == "done", "two of three"


def test_our_own_vote_counts_only_when_it_is_durable(net: Net) -> None:
    """The Accepts leave before the master's own write; its vote does not count before it is
    durable."""
    master = net.elect(1)
    net.cut(1, 3)
    master.writer.held = True
    accepts = sent(net, 1, Accept)
    outcomes = master.submit("x")
    net.settle()
    assert sent(net, 1, Accept) == accepts + 1
    assert net[2].wal.synced > 0
    assert outcomes == [], "node 2's vote alone is no majority"
    master.writer.held = False
    net.settle()
    assert why(outcomes) == "done"


def test_a_promise_leaves_only_when_it_is_durable(net: Net) -> None:
    for member in net.members.values():
        member.writer.held = True
    net.advance(2_000)
    assert not any(sent(net, node, Promise) for node in net.node_ids)
    for member in net.members.values():
        member.writer.held = False
    net.until(lambda: any(member.acting() for member in net.members.values()))


def test_what_is_staged_meanwhile_shares_the_next_sync(net: Net) -> None:
    """Group commit: one batch is under way, and everything that comes meanwhile is in the next
    one."""
    master = net.elect(1)
    batches = master.engine.statistics.batches
    master.writer.held = True
    outcomes = [master.submit("0")]
    net.settle()
    for number in range(1, 6):
        outcomes.append(master.submit(str(number)))
        net.settle()
    assert master.engine.statistics.batches == batches + 1
    master.writer.held = False
    net.settle()
    assert master.engine.statistics.batches == batches + 2
    assert [why(one) for one in outcomes] == ["done"] * 6


def test_what_depends_on_a_later_batch_waits_for_that_one(net: Net) -> None:
    """`after` of a round waits for everything staged up to then, not only for the batch under
    way."""
    net.elect(1)
    follower = net[2]
    follower.writer.held = True
    net[1].submit("one")
    net.settle()
    net[1].submit("two")
    net.settle()
    votes = sent(net, 2, Accepted)
    follower.writer.work()
    follower.engine.on_durable()
    follower.engine.end_round()
    assert sent(net, 2, Accepted) == votes + 1, "the first batch had the first vote"
    follower.writer.work()
    follower.engine.on_durable()
    follower.engine.end_round()
    assert sent(net, 2, Accepted) == votes + 2


# -- the disk fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
def test_a_failed_disk_stops_everything(net: Net, operation: str) -> None:
    """No vote, no acknowledgement, nothing: the shell lets the failure end the process."""
    master = net.elect(1)
    net.cut(1, 3)
    master.writer.held = True
    outcomes = master.submit("x")
    net.settle()
    master.disk.fail(operation, errno.EIO)
    master.writer.work()
    sent_so_far = len(net.sent)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="injected"):
            master.engine.on_durable()
    assert outcomes == []
    assert len(net.sent) == sent_so_far


def test_a_failed_followers_vote_never_leaves(net: Net) -> None:
    net.elect(1)
    follower = net[2]
    follower.writer.held = True
    votes = sent(net, 2, Accepted)
    net[1].submit("x")
    net.settle()
    follower.disk.fail("fdatasync", errno.EIO)
    follower.writer.work()
    with pytest.raises(StorageFailed):
        follower.engine.on_durable()
    assert sent(net, 2, Accepted) == votes


# -- restart --------------------------------------------------------------------------------------


def test_a_restart_replays_the_log_to_the_same_state(net: Net) -> None:
    """After a power cut, without anything unsynced: what was applied is applied again, with the
    same result."""
    master = net.elect(1)
    for number in range(30):
        master.submit(f"c{number}")
        if number % 3 == 0:
            net.settle()
    net.advance(600)
    before = [member.ledger.lines for member in net.members.values()]
    assert before[0] == before[1] == before[2]
    assert len(before[0]) == 30
    for node in net.node_ids:
        net.crash(node)
    for node in net.node_ids:
        net.restart(node)
    recovered = [member.ledger.lines for member in net.members.values()]
    for lines in recovered:
        assert lines == before[0][: len(lines)], "a prefix, and never anything else"
    net.advance(600)
    net.until(lambda: all(m.ledger.lines == before[0] for m in net.members.values()))
    assert net[1].multi.incarnation == 2


def test_what_was_acknowledged_survives_the_loss_of_any_node(net: Net) -> None:
    master = net.elect(1)
    outcomes = [master.submit(f"c{number}") for number in range(10)]
    net.settle()
    assert {why(one) for one in outcomes} == {"done"}
    net.crash(1)
    net.until(lambda: net[2].acting() or net[3].acting(), 30_000)
    net.advance(100)
    survivors = [m.ledger.texts() for m in net.others(1)]
    assert survivors == [[f"c{number}" for number in range(10)]] * 2


def test_segments_roll_under_load_and_replay(net: Net) -> None:
    """Many small segments: the next one is prepared in time, and a restart reads them all."""
    net = Net(segment=64 * 1024)
    master = net.elect(1)
    for number in range(60):
        master.engine.submit(GROUP, command(f"c{number}", pad=8_000), lambda _outcome: None)
        net.settle()
    assert master.wal.statistics().segments > 3
    net.advance(100)
    net.crash(1)
    net.restart(1)
    net.until(lambda: len(net[1].ledger.lines) == 60)


# -- catching up ----------------------------------------------------------------------------------


def test_a_member_that_was_away_is_served_in_bounded_pieces(net: Net) -> None:
    net = Net(segment=8 << 20)
    master = net.elect(1)
    net.crash(3)
    for number in range(50):
        body = command(f"c{number}", pad=30_000)
        for _ in range(4):
            master.engine.submit(GROUP, body, lambda _outcome: None)
        net.settle()
    assert sum(len(line) for _, line in master.ledger.lines) > 5 * SERVE_BYTES_MAX
    net.restart(3)
    net.until(lambda: net[3].ledger.lines == master.ledger.lines)
    pieces = [one.message for one in net.sent if type(one.message) is Learned and one.target == 3]
    sizes = [sum(entry.size for entry in piece.entries) for piece in pieces]
    largest_entry = max(entry.size for piece in pieces for entry in piece.entries)
    assert len(pieces) > 5
    assert max(sizes) < SERVE_BYTES_MAX + largest_entry


def test_one_large_entry_is_served_however_large_it_is(net: Net) -> None:
    net = Net(segment=8 << 20, intake=IntakeConfig(entry_bytes_max=4 << 20))
    master = net.elect(1)
    net.crash(3)
    for _ in range(50):
        master.engine.submit(GROUP, command("x", pad=32_000), lambda _outcome: None)
    net.settle()
    assert master.ledger.applied
    net.restart(3)
    net.until(lambda: net[3].ledger.lines == master.ledger.lines)


def test_a_member_asks_for_what_it_missed_and_for_nothing_else(net: Net) -> None:
    master = net.elect(1)
    master.submit("x")
    net.advance(100)
    asked = sent(net, 2, Learn) + sent(net, 3, Learn)
    net.advance(3_000)
    assert sent(net, 2, Learn) + sent(net, 3, Learn) == asked


# -- limits ---------------------------------------------------------------------------------------


def test_a_full_queue_refuses_with_a_retriable_reason(net: Net) -> None:
    net = Net(intake=IntakeConfig(refuse_bytes_max=1000, undecided_bytes_max=1))
    master = net.elect(1)
    net.cut(1, 2)
    net.cut(1, 3)
    outcomes = [master.submit("x" * 100) for _ in range(30)]
    refused = [one for one in outcomes if one]
    assert refused
    assert {why(one) for one in refused} == {"overloaded"}


def answered(net: Net, member: Member) -> list[Outcome]:
    outcomes = member.submit("x")
    net.settle()
    return outcomes


def test_a_master_with_a_full_disk_refuses_and_still_renews_its_lease(net: Net) -> None:
    master = net.elect(1)
    master.submit("before")
    master.engine.disk_pressure.low = True
    refused = master.submit("x")
    assert why(refused) == "overloaded"
    assert master.engine.statistics.refused_disk_full == 1
    renewals = master.replica.lease.renewals
    net.advance(20_000)
    assert master.acting()
    assert master.replica.lease.renewals > renewals
    master.engine.disk_pressure.low = False
    outcomes = master.submit("after")
    net.settle()
    assert why(outcomes) == "done"
    net.until(lambda: net[3].ledger.texts() == ["before", "after"])


def test_a_master_with_a_full_disk_still_deletes_records(net: Net) -> None:
    """A command of its own client, and one that another node has forwarded."""
    net.elect(1)
    for member in net.members.values():
        member.engine.disk_pressure.low = member.engine.disk_pressure.critical = True
    outcomes: list[Outcome] = []
    for number in (1, 2):
        net[number].engine.submit(GROUP, delete_records(7, 3), outcomes.append, anywhere=True)
    net.until(lambda: len(outcomes) == 2)
    assert [why(outcomes[:1]), why(outcomes[1:])] == ["done", "done"]
    assert why(net[1].submit("x")) == "overloaded"


@pytest.mark.parametrize("refused", ["no room", "nonsense"])
def test_room_again_lets_nothing_through_that_came_behind_a_refusal(
    net: Net, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three commands of one connection, forwarded by another node: the first is refused, and the
    next was already on its way. The last was sent when the fate of all before it was known."""
    master = net.elect(1)
    told: list[str] = []
    monkeypatch.setattr(
        master.engine.links,
        "answer_forward",
        lambda _to, _number, outcome: told.append(why([outcome])),
    )

    def arrives(chunks: tuple[Buffer, ...], flags: int) -> None:
        master.engine.on_forward(NodeId(2), 1, GROUP, flags, memoryview(b"".join(chunks)))

    master.engine.disk_pressure.low = refused == "no room"
    arrives((b"\xff",) if refused == "nonsense" else command("a"), ORDERED | FIRST)
    master.engine.disk_pressure.low = False
    arrives(command("b"), ORDERED)
    arrives(command("c"), 0)
    assert told == ["overloaded" if refused == "no room" else "not master", "not master"]
    arrives(command("d"), ORDERED | FIRST)
    net.until(lambda: told[2:] == ["done", "done"])
    assert master.ledger.texts() == ["c", "d"]


def test_who_is_not_master_says_who_is_whatever_its_disk(net: Net) -> None:
    """Found in a cluster: a producer was told, for ever, to try again at a node that had given its
    masters away because its disk was full."""
    net.elect(1)
    net[2].engine.disk_pressure.low = True
    assert why(net[2].submit("x")) == "not master"
    assert net[2].engine.statistics.refused_disk_full == 0


def test_a_member_with_a_full_disk_takes_small_entries_only_and_learns_the_rest_later() -> None:
    net = Net(intake=IntakeConfig(entry_bytes_max=1))
    master = net.elect(1)
    net[3].engine.disk_pressure.critical = True
    written = net[3].wal.statistics().bytes_staged
    outcomes = []
    for number in range(20):
        outcomes += [master.submit(f"{number}" + "x" * 10_000)]
    net.advance(3_000)
    assert {why(one) for one in outcomes} == {"done"}, "the other two are enough"
    assert net[3].wal.statistics().bytes_staged - written < 20_000
    net[3].engine.disk_pressure.critical = False
    net.until(lambda: net[3].ledger.lines == master.ledger.lines)


def test_a_master_refuses_where_those_with_room_are_no_majority(net: Net) -> None:
    """Otherwise it would fill their disks, or have undecided entries that block its lease."""
    master = net.elect(1)
    master.engine.on_low(NodeId(2), True)
    assert why(answered(net, master)) == "done"
    master.engine.on_low(NodeId(3), True)
    assert why(answered(net, master)) == "overloaded"
    net.advance(10_000)
    assert master.acting()
    master.engine.on_low(NodeId(2), False)
    assert why(answered(net, master)) == "done"
    master.engine.on_low(NodeId(2), True)
    master.engine.peer_up(NodeId(2), Incarnation(9))
    assert why(answered(net, master)) == "done", "it has started again, and said nothing yet"


def test_a_forward_waits_in_one_place_only(net: Net) -> None:
    """We gave it up, and it may still be carried out there; then nobody gets an answer."""
    net.elect(2)
    net.lose_answers = True
    outcomes = [net[1].submit(str(number), anywhere=True) for number in range(20)]
    net.advance(FORWARD_TIMEOUT_NS // MS + 100)
    assert {why(one) for one in outcomes} == {"unknown"}
    assert net[1].engine.forwards.under_way == 0
    assert len(net[2].ledger.texts()) == 20


def test_draining_peers_are_remembered_until_they_say_otherwise(net: Net) -> None:
    engine = net[1].engine
    engine.on_draining(NodeId(2), True)
    assert engine.draining_peers == {2}
    engine.on_draining(NodeId(2), False)
    assert engine.draining_peers == set()
    engine.on_draining(NodeId(2), True)
    engine.peer_up(NodeId(2), Incarnation(9))
    assert engine.draining_peers == set(), "it has started again"


def test_pendings_are_answered_once(net: Net) -> None:
    """Whatever happens to a master: step by step it loses its links, its lease and its group."""
    master = net.elect(1)
    outcomes = [master.submit(f"c{number}") for number in range(5)]
    net.cut(1, 2)
    net.cut(1, 3)
    outcomes += [master.submit(f"d{number}") for number in range(5)]
    net.advance(6_000)
    net.heal(1, 2)
    net.heal(1, 3)
    net.advance(6_000)
    assert all(len(one) == 1 for one in outcomes)
