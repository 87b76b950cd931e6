"""A coordinator that moves, fails, pauses or loses a proposal: what the members notice."""

from coordinator.model import (
    NO_MEMBER,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    ProposalFailure,
    SyncGroupResponse,
)
from tests.coordinator.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    World,
    committed_offset,
    share,
    stable_group,
)


def test_a_steal_costs_no_rebalance() -> None:
    """The next coordinator keeps members, generation and assignments (design.md, steal, 5)."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    assert anna.commit(41) == ErrorCode.NONE
    world.fail_over()
    assert (anna.heartbeat(), bert.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert anna.commit(42) == ErrorCode.NONE
    assert bert.synced(bert.sync()) == b"bert"
    assert committed_offset(world) == 42
    assert bert.learn(bert.send_join()).generation == 1
    assert world.coordinator.statistics().rebalances == 0


def test_members_get_a_whole_session_from_the_next_coordinator() -> None:
    """However long the failover took; a member that is really dead is detected after it."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    world.resign()
    world.now_ms += 10 * SESSION_MS
    world.fail_over()
    world.pass_time(SESSION_MS - 1)
    assert anna.heartbeat() == ErrorCode.NONE
    world.pass_time(1)
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_resigns_answers_everyone() -> None:
    """Waiting joins, syncs and leaves are all redirected; later requests too. A member with a
    commit on its way waits until its fate is known."""
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert)
    world.auto_commit = False
    join = carl.join()
    commit = anna.send_commit(7)
    leave = bert.leave()
    assert not {join, commit, leave} & world.answers.keys()
    world.resign()
    moved = ErrorCode.NOT_COORDINATOR
    assert world.answer(join, JoinGroupResponse).error == moved
    assert world.answer(leave, LeaveGroupResponse).error == moved
    assert set(world.left.values()) == {commit}
    assert anna.heartbeat() == moved
    assert world.answers.keys() == world.asked.keys() - {commit}
    assert world.coordinator.next_deadline() is None
    assert not world.coordinator.tick(world.now_ms).replies


def test_a_result_that_comes_after_the_resignation_is_no_news() -> None:
    """The client was redirected to the next coordinator, which sees the outcome."""
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    world.auto_commit = False
    anna.send_commit(7)
    world.resign()
    world.commit()
    world.fail_over()
    assert committed_offset(world) == 7
    world.auto_commit = True
    assert anna.commit(8) == ErrorCode.NONE
    assert committed_offset(world) == 8


def test_a_move_while_members_wait_for_the_plan_goes_on_where_it_was() -> None:
    """The generation is in the log, so the next coordinator accepts the leader's plan."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    tokens = [anna.join(), bert.join()]
    world.pass_time(500)
    anna.learn(tokens[0])
    bert.learn(tokens[1])
    waiting = bert.sync()
    world.fail_over()
    assert world.answer(waiting, SyncGroupResponse).error == ErrorCode.NOT_COORDINATOR
    assert anna.heartbeat() == ErrorCode.NONE
    share(world, anna, bert)
    assert anna.generation == 1


def test_a_generation_that_anyone_was_told_of_is_never_given_out_again() -> None:
    """Also if the coordinator dies between the join and the sync."""
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna)
    second = bert.join()
    anna.learn(anna.join())
    bert.learn(second)
    assert anna.generation == 2
    world.fail_over()
    carl.join()
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    assert bert.learn(bert.join()).generation == 3


def test_a_move_after_a_departure_goes_on_with_the_rebalance() -> None:
    """Nobody waits for the session of a member that has left."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    bert.leave()
    world.fail_over()
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    joined = anna.learn(anna.join())
    assert (joined.generation, joined.leader) == (2, anna.member_id)
    share(world, anna)


def test_a_rebalance_taken_over_ends_in_time_too() -> None:
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert, carl)
    carl.leave()
    world.fail_over()
    token = anna.join()
    for _ in range(REBALANCE_MS // 5_000):
        bert.heartbeat()
        world.pass_time(5_000)
    assert [m.member_id for m in anna.learn(token).members] == [anna.member_id]


def test_a_joiner_that_was_in_no_generation_is_not_in_the_log() -> None:
    """A departure is written in the middle of a rebalance, without the newcomers."""
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert)
    carl.join()
    bert.leave()
    stored = world.stores[1].get(GROUP)
    assert stored is not None
    assert list(stored.members) == [anna.member_id]


def test_a_snapshot_lost_on_the_way_is_a_coordinator_that_has_moved() -> None:
    """Members that waited for it ask again; the others notice nothing."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna)
    world.auto_commit = False
    token = bert.join()
    rejoin = anna.join()
    assert len(world.in_flight) == 1
    world.fail(ProposalFailure.NOT_MASTER)
    assert world.answer(token, JoinGroupResponse).error == ErrorCode.NOT_COORDINATOR
    assert world.answer(rejoin, JoinGroupResponse).error == ErrorCode.NOT_COORDINATOR
    assert anna.heartbeat() == ErrorCode.NONE
    assert world.coordinator.statistics().snapshots_lost == 1
    world.auto_commit = True
    bert.member_id = NO_MEMBER
    token = bert.join()
    anna.learn(anna.join())
    bert.learn(token)
    share(world, anna, bert)


def test_a_commit_of_unknown_fate_is_no_definite_failure() -> None:
    """F2: it may reach the log now, later or never; a client that gets NOT_COORDINATOR may rely on
    "not"."""
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    world.auto_commit = False
    unknown, never = anna.send_commit(3), anna.send_commit(4)
    world.fail(ProposalFailure.UNKNOWN)
    world.fail(ProposalFailure.NOT_MASTER)
    assert anna.committed(unknown) == ErrorCode.REQUEST_TIMED_OUT
    assert anna.committed(never) == ErrorCode.NOT_COORDINATOR


def test_an_overloaded_log_is_a_reason_to_wait() -> None:
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    world.auto_commit = False
    commit = anna.send_commit(3)
    world.fail(ProposalFailure.OVERLOADED)
    assert anna.committed(commit) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    leave = anna.leave()
    world.fail(ProposalFailure.OVERLOADED)
    refused = world.answer(leave, LeaveGroupResponse)
    assert refused.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert anna.heartbeat() == ErrorCode.NONE


def test_a_foreign_snapshot_is_noticed_and_taken_over() -> None:
    """The revision fences: the last writer in the log is right, and the view follows."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna)
    world.auto_commit = False
    bert.join()
    anna.join()
    mine = world.in_flight[0]
    for store in world.stores:
        store.apply(mine.command)  # as if it had been chosen twice
    world.commit()
    assert world.coordinator.statistics().snapshots_lost == 1
    described = world.answer(world.ask(DescribeGroup(group=GROUP)), DescribeGroupResponse)
    assert described.state == "CompletingRebalance"
    assert len(described.members) == 2


def test_snapshots_are_coalesced_while_one_is_under_way() -> None:
    """One in flight for each group, however many members come and go."""
    world = World()
    clients = [Client(world, f"c{index}") for index in range(10)]
    stable_group(world, *clients)
    world.auto_commit = False
    tokens = [client.leave() for client in clients[1:]]
    assert len(world.in_flight) == 1
    world.commit(1)
    assert [token in world.answers for token in tokens] == [True] + 8 * [False]
    world.commit(1)
    assert all(token in world.answers for token in tokens)
    assert not world.in_flight


def test_a_pause_of_the_coordinator_evicts_nobody() -> None:
    """Woken after minutes, it must not count its own silence (SIGSTOP, a suspended machine). Time
    that it cannot have slept through, because it had asked to be called, does count."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    world.pause(10 * SESSION_MS)
    assert world.coordinator.statistics().pauses == 1
    world.pass_time(SESSION_MS - world.config.pause_ms_max // 2 - 1)
    assert anna.heartbeat() == ErrorCode.NONE
    world.pass_time(1)
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID  # bert really is dead
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_pause_noticed_by_a_heartbeat_counts_as_well() -> None:
    """Requests may be served before the first tick after the pause."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    world.now_ms += 10 * SESSION_MS
    assert anna.heartbeat() == ErrorCode.NONE
    world.pause(0)
    assert bert.heartbeat() == ErrorCode.NONE


def test_a_pause_does_not_cut_a_rebalance_short() -> None:
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert)
    carl.join()
    world.pause(2 * REBALANCE_MS)
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    assert bert.learn(bert.join()).generation == 2


def test_ticks_are_asked_for_often_enough_to_tell_a_pause() -> None:
    """However long the sessions are; and not at all if there is nobody to watch."""
    world = World()
    assert world.coordinator.next_deadline() is None
    anna = Client(world, "anna")
    stable_group(world, anna)
    next_ms = world.coordinator.next_deadline()
    assert next_ms is not None
    assert next_ms - world.now_ms <= world.config.pause_ms_max // 2
    world.pass_time(SESSION_MS // 2)
    anna.heartbeat()
    world.pass_time(SESSION_MS // 2)
    assert anna.heartbeat() == ErrorCode.NONE
    assert world.coordinator.statistics().pauses == 0


def test_a_tick_gap_within_the_bound_is_no_pause() -> None:
    """The bound must not make members immortal on a busy machine."""
    world = World()
    stable_group(world, Client(world, "anna"))
    for _ in range(SESSION_MS // world.config.pause_ms_max + 1):
        world.pause(world.config.pause_ms_max)
    assert world.coordinator.statistics().sessions_expired == 1


def test_member_ids_are_unique_across_terms() -> None:
    world = World()
    ids = set()
    for _ in range(4):
        for _ in range(3):
            client = Client(world, "c")
            ids.add(world.answer(client.send_join(), JoinGroupResponse).member_id)
        world.fail_over()
    assert len(ids) == 12


def test_before_any_election_everything_is_refused() -> None:
    world = World()
    world.resign()
    anna = Client(world, "anna")
    assert world.answer(anna.send_join(), JoinGroupResponse).error == ErrorCode.NOT_COORDINATOR
    token = anna.send_commit(1)
    answer = world.answer(token, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error == ErrorCode.NOT_COORDINATOR
    assert anna.heartbeat() == ErrorCode.NOT_COORDINATOR
    assert HeartbeatResponse(error=ErrorCode.NOT_COORDINATOR) in world.answers.values()
