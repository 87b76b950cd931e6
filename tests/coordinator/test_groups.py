"""Consumer groups as stories: joining, assigning, leaving, dying (seeds D1-D8)."""

import pytest

from coordinator.limits import CoordinatorConfig
from coordinator.live.group import LiveGroup, LiveMember, choose_protocol
from coordinator.model import (
    ConsumerGroupId,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    ListGroups,
    ListGroupsResponse,
    MemberId,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.states import (
    NEXT_STATE,
    GroupEvent,
    GroupState,
    IllegalTransitionError,
    next_state,
)
from tests.coordinator.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    World,
    share,
    stable_group,
)


def state_of(world: World) -> str:
    token = world.ask(DescribeGroup(group=GROUP))
    return world.answer(token, DescribeGroupResponse).state


def test_D2_a_first_member_goes_through_the_four_phases() -> None:
    """Registration, leader, assignment, stable: the four phases with one member (D2, D8)."""
    world = World()
    anna = Client(world, "anna")
    first = anna.send_join()
    required = world.answer(first, JoinGroupResponse)
    assert required.error == ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("anna-")
    anna.member_id = required.member_id

    token = anna.send_join()
    assert token not in world.answers  # the empty group waits a little for others
    world.pass_time(99)
    assert state_of(world) == "PreparingRebalance"
    world.pass_time(1)

    joined = anna.learn(token)
    assert (joined.generation, joined.leader) == (1, anna.member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in joined.members] == [(anna.member_id, b"topics")]
    assert state_of(world) == "CompletingRebalance"
    assert anna.synced(anna.sync({anna.member_id: b"p0 p1"})) == b"p0 p1"
    assert state_of(world) == "Stable"
    assert anna.heartbeat() == ErrorCode.NONE


def test_an_old_client_joins_without_being_sent_away_first() -> None:
    """Before v4 no client has to come back with an id."""
    world = World()
    request = JoinGroup(
        group=GROUP,
        session_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
    )
    token = world.ask(request)
    world.pass_time(100)
    joined = world.answer(token, JoinGroupResponse)
    assert (joined.error, joined.generation) == (ErrorCode.NONE, 1)
    assert joined.leader == joined.member_id != ""


def test_members_that_come_within_the_initial_delay_share_the_first_generation() -> None:
    """The delay is extended while members keep coming, so five members cost one rebalance."""
    world = World()
    clients = [Client(world, name) for name in "abcde"]
    tokens = []
    for client in clients:
        tokens.append(client.join())
        world.pass_time(60)
    world.pass_time(200)
    joined = [client.learn(token) for client, token in zip(clients, tokens, strict=True)]
    assert {answer.generation for answer in joined} == {1}
    assert [len(answer.members) for answer in joined] == [5, 0, 0, 0, 0]
    assert world.coordinator.statistics().rebalances == 1


def test_a_second_member_makes_the_first_join_again() -> None:
    """Its heartbeat tells the first member; the generation grows by 1, and the leader stays
    (A9)."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna)
    waiting = bert.join()
    assert waiting not in world.answers
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = anna.join()
    assert anna.learn(rejoin).generation == 2
    assert bert.learn(waiting).leader == anna.member_id
    assert {m.member_id for m in anna.joined.members} == {anna.member_id, bert.member_id}  # type: ignore[union-attr]  # learned above
    share(world, anna, bert)
    assert (anna.heartbeat(), bert.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_D8_the_leader_is_told_everything_and_everyone_gets_its_own_part() -> None:
    """A SyncGroup waits for the leader's, and a member without a part gets nothing."""
    world = World()
    anna, bert, carl = (
        Client(world, name, protocols=(Protocol("range", name.encode()),))
        for name in ("anna", "bert", "carl")
    )
    tokens = [client.join() for client in (anna, bert, carl)]
    world.pass_time(500)
    joined = [client.learn(token) for client, token in zip((anna, bert, carl), tokens, strict=True)]
    told = [[(one.member_id, one.metadata) for one in answer.members] for answer in joined]
    everybody = [(client.member_id, client.name.encode()) for client in (anna, bert, carl)]
    assert told == [everybody, [], []]
    early = bert.sync()
    assert early not in world.answers
    lead = anna.sync({anna.member_id: b"p0", bert.member_id: b"p1"})
    assert (anna.synced(lead), bert.synced(early)) == (b"p0", b"p1")
    assert carl.synced(carl.sync()) == b""


def test_nothing_is_told_before_the_log_has_it() -> None:
    """Neither a generation nor an assignment nor a departure."""
    world = World()
    world.auto_commit = False
    anna, bert = Client(world, "anna"), Client(world, "bert")
    joins = [anna.join(), bert.join()]
    world.pass_time(500)
    assert not any(token in world.answers for token in joins)
    world.commit()
    anna.learn(joins[0])
    bert.learn(joins[1])

    lead = anna.sync({anna.member_id: b"p0", bert.member_id: b"p1"})
    follow = bert.sync()
    assert lead not in world.answers
    assert follow not in world.answers
    assert state_of(world) == "CompletingRebalance"
    world.commit()
    assert (anna.synced(lead), bert.synced(follow)) == (b"p0", b"p1")

    leaving = bert.leave()
    assert leaving not in world.answers
    world.commit()
    assert bert.left(leaving) == ErrorCode.NONE


def test_the_leader_leaves_and_another_leads() -> None:
    """A15: after a leave there is a new leader, a new generation and a new assignment."""
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert, carl)
    assert anna.left(anna.leave()) == ErrorCode.NONE
    assert bert.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    second, third = bert.join(), carl.join()
    assert bert.learn(second).leader == bert.member_id
    assert carl.learn(third).generation == 2
    share(world, bert, carl)
    assert anna.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    """It is still a change of members, so the generation counts it."""
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    assert anna.left(anna.leave()) == ErrorCode.NONE
    assert state_of(world) == "Empty"
    stored = world.stores[1].get(GROUP)
    assert stored is not None
    assert (stored.generation, stored.members) == (2, {})
    stable_group(world, Client(world, "bert"))
    assert world.stores[1].get(GROUP).generation == 3  # type: ignore[union-attr]  # just stored


def test_D4_a_silent_member_loses_its_place_and_a_talking_one_does_not() -> None:
    """Liveness (D4): session timeouts by heartbeats."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    for _ in range(3):
        world.pass_time(SESSION_MS // 3)
        assert anna.heartbeat() == ErrorCode.NONE
    world.pass_time(SESSION_MS // 3)
    assert world.coordinator.statistics().sessions_expired == 1
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    anna.learn(anna.join())
    share(world, anna)


def test_a_member_that_does_not_rejoin_in_time_is_left_out() -> None:
    """The rebalance timeout ends the wait, even for a member that goes on sending heartbeats."""
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert)
    third, first = carl.join(), anna.join()
    for _ in range(REBALANCE_MS // 5_000 - 1):
        world.pass_time(5_000)
        assert bert.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert first not in world.answers
    world.pass_time(5_000)
    assert {m.member_id for m in anna.learn(first).members} == {anna.member_id, carl.member_id}
    assert carl.learn(third).generation == 2
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_and_never_syncs_is_removed() -> None:
    """A waiting join whose client is gone must not keep its partitions for a generation."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    tokens = [anna.join(), bert.join()]
    world.pass_time(500)
    anna.learn(tokens[0])
    bert.learn(tokens[1])
    anna.synced(anna.sync({anna.member_id: b"p0", bert.member_id: b"p1"}))
    for _ in range(REBALANCE_MS // 5_000):
        world.pass_time(5_000)
        anna.heartbeat()
        bert.heartbeat()
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_never_used_holds_nobody_up_for_long() -> None:
    """KIP-394: a client that asks for an id and vanishes was never a member."""
    world = World()
    anna = Client(world, "anna")
    anna.send_join()
    assert world.coordinator.statistics().members == 0
    world.pass_time(SESSION_MS)
    assert world.coordinator.statistics().groups_live == {}
    assert world.coordinator.next_deadline() is None
    stable_group(world, anna)


def test_a_lost_join_answer_is_given_again() -> None:
    """The same JoinGroup in the same generation is a repetition, not a change (A6)."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    tokens = [anna.join(), bert.join()]
    world.pass_time(500)
    first = anna.learn(tokens[0])
    again = anna.learn(anna.send_join())
    assert again == first
    bert.learn(tokens[1])
    share(world, anna, bert)
    assert bert.learn(bert.send_join()).generation == 1
    assert bert.synced(bert.sync()) == b"bert"


def test_a_repeated_join_answers_the_one_it_replaces() -> None:
    """No request stays without an answer, not even one whose client has given it up."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna)
    old = bert.join()
    new = bert.send_join()
    assert world.answer(old, JoinGroupResponse).error == ErrorCode.REBALANCE_IN_PROGRESS
    anna.learn(anna.join())
    bert.learn(new)


def test_D10_a_leader_that_joins_again_wants_a_rebalance() -> None:
    """Its subscription's metadata may have changed (D10): only the leader can know."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    token = anna.join()
    assert bert.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    bert.learn(bert.join())
    assert anna.learn(token).generation == 2
    share(world, anna, bert)


def test_a_follower_with_new_metadata_causes_a_rebalance() -> None:
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    bert.protocols = (Protocol("range", b"more topics"),)
    token = bert.join()
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    told = anna.learn(anna.join())
    assert {m.metadata for m in told.members} == {b"topics", b"more topics"}
    bert.learn(token)


def test_a_sync_that_waits_is_released_by_the_next_rebalance() -> None:
    world = World()
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    tokens = [anna.join(), bert.join()]
    world.pass_time(500)
    anna.learn(tokens[0])
    bert.learn(tokens[1])
    waiting = bert.sync()
    carl.join()
    released = world.answer(waiting, SyncGroupResponse)
    assert released.error == ErrorCode.REBALANCE_IN_PROGRESS
    late = world.answer(anna.sync({anna.member_id: b"all"}), SyncGroupResponse)
    assert late.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_D3_leader_and_followers_know_of_each_other_through_the_coordinator_alone() -> None:
    """Every role talks to the coordinator and is watched by it. That includes the leader, which
    leads only while its heartbeats come, and whose plan the others get only through SyncGroup."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    assert anna.joined is not None
    assert anna.joined.leader == anna.member_id
    for _ in range(3):
        world.pass_time(SESSION_MS // 3)
        assert bert.heartbeat() == ErrorCode.NONE
    world.pass_time(SESSION_MS // 3)
    assert bert.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert bert.learn(bert.join()).leader == bert.member_id
    assert anna.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    share(world, bert)


def test_D4_generation_and_member_id_fence() -> None:
    """Old generations, strangers and other protocols get Kafka's errors (D4)."""
    world = World()
    anna, eve = Client(world, "anna"), Client(world, "eve")
    stable_group(world, anna)
    eve.generation, eve.member_id = 1, MemberId("eve-1-99")
    assert eve.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answer(eve.sync(), SyncGroupResponse).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answer(eve.send_join(), JoinGroupResponse).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert eve.left(eve.leave()) == ErrorCode.UNKNOWN_MEMBER_ID
    anna.generation = 0
    assert anna.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert world.answer(anna.sync(), SyncGroupResponse).error == ErrorCode.ILLEGAL_GENERATION
    wrong = SyncGroup(
        group=GROUP, generation=1, member_id=anna.member_id, protocol_name="roundrobin"
    )
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.answer(world.ask(wrong), SyncGroupResponse).error == inconsistent


def test_D5_members_must_agree_on_a_protocol() -> None:
    """D5: a member without a protocol in common is refused and disturbs nobody."""
    world = World()
    offers = (Protocol("sticky", b"s"), Protocol("range", b"r"))
    anna = Client(world, "anna", protocols=offers)
    stable_group(world, anna)
    stranger = Client(world, "bert", protocols=(Protocol("roundrobin", b""),))
    refused = world.answer(stranger.send_join(), JoinGroupResponse)
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert anna.heartbeat() == ErrorCode.NONE
    carl = Client(world, "carl", protocols=(Protocol("range", b"c"),))
    token = carl.join()
    told = anna.learn(anna.join())
    assert told.protocol_name == "range"
    assert [m.metadata for m in told.members] == [b"r", b"c"]
    carl.learn(token)
    anna.protocols = (Protocol("sticky", b"s"),)  # now it would leave carl without a common one
    refused = world.answer(anna.send_join(), JoinGroupResponse)
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_only_member_may_change_all_its_protocols() -> None:
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    anna.protocols = (Protocol("connect", b""),)
    assert anna.learn(anna.join()).protocol_name == "connect"


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([["a", "b"], ["b", "a"], ["b", "a"]], "b"),
        ([["a", "b"], ["b", "a"]], "a"),
        ([["b", "a"], ["a", "b"]], "b"),
        ([["c", "b", "a"], ["a", "b"], ["b", "a"]], "b"),
        ([["c", "a"], ["a"]], "a"),
    ],
)
def test_D5_most_votes_win_and_the_leader_breaks_a_draw(
    offers: list[list[str]], chosen: str
) -> None:
    """D5: only protocols that all support; each votes for its first one; the leader breaks a
    draw."""
    by_member = {
        MemberId(f"m{index}"): [Protocol(name, b"") for name in offer]
        for index, offer in enumerate(offers)
    }
    assert choose_protocol(by_member, MemberId("m0")) == chosen


def test_several_members_leave_at_once() -> None:
    """LeaveGroup v3+ answers each by itself, and causes one rebalance."""
    world = World()
    clients = [Client(world, name) for name in ("anna", "bert", "carl")]
    stable_group(world, *clients)
    leaving = (
        LeavingMember(clients[0].member_id),
        LeavingMember(clients[1].member_id),
        LeavingMember(clients[1].member_id),
        LeavingMember(MemberId("nobody")),
    )
    token = world.ask(LeaveGroup(group=GROUP, members=leaving))
    errors = [member.error for member in world.answer(token, LeaveGroupResponse).members]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown]
    assert clients[2].learn(clients[2].join()).generation == 2
    assert world.coordinator.statistics().rebalances == 2


def test_groups_are_listed_by_state() -> None:
    world = World()
    stable_group(world, Client(world, "anna"))
    other = Client(world, "bert", group=ConsumerGroupId("audit"))
    stable_group(world, other)
    other.leave()
    listed = [(g.group, g.state) for g in world.listed()]
    assert listed == [("orders", "Stable"), ("audit", "Empty")]
    assert [g.group for g in world.listed(frozenset({"Stable"}))] == ["orders"]
    gone = world.ask(ListGroups(names=(ConsumerGroupId("deleted since"),)))
    assert world.answer(gone, ListGroupsResponse).groups == ()


def test_describe_tells_members_and_assignments() -> None:
    world = World()
    anna = Client(world, "anna", instance_id="i-1")
    stable_group(world, anna)
    described = world.answer(world.ask(DescribeGroup(group=GROUP)), DescribeGroupResponse)
    (member,) = described.members
    assert (described.state, described.protocol_name) == ("Stable", "range")
    assert (member.member_id, member.instance_id) == (anna.member_id, "i-1")
    assert (member.client_id, member.metadata, member.assignment) == ("anna", b"topics", b"anna")
    unknown = world.ask(DescribeGroup(group=ConsumerGroupId("no such group")))
    assert world.answer(unknown, DescribeGroupResponse).state == "Dead"


def test_limits_have_answers() -> None:
    """Every limit has its own error, and other members are not disturbed."""
    config = CoordinatorConfig(groups_max=1, members_per_group_max=2, member_metadata_bytes_max=100)
    world = World(config)
    anna, bert, carl = (Client(world, name) for name in ("anna", "bert", "carl"))
    stable_group(world, anna, bert)

    def refusal_of(client: Client) -> ErrorCode:
        return world.answer(client.send_join(), JoinGroupResponse).error

    assert refusal_of(carl) == ErrorCode.GROUP_MAX_SIZE_REACHED
    dora = Client(world, "dora", group=ConsumerGroupId("second"))
    assert refusal_of(dora) == ErrorCode.POLICY_VIOLATION
    assert refusal_of(Client(world, "e", group=ConsumerGroupId(""))) == ErrorCode.INVALID_GROUP_ID
    many = Client(world, "f", protocols=(Protocol("range", bytes(101)),))
    assert refusal_of(many) == ErrorCode.INVALID_REQUEST
    none = Client(world, "g", protocols=())
    assert refusal_of(none) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unwritable = Client(world, "\ud800")
    assert refusal_of(unwritable) == ErrorCode.INVALID_REQUEST
    assert (anna.heartbeat(), bert.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_plan_that_does_not_fit_the_log_is_refused() -> None:
    world = World(CoordinatorConfig(group_bytes_max=20_000))
    anna = Client(world, "anna")
    token = anna.join()
    world.pass_time(500)
    anna.learn(token)
    refused = anna.sync({anna.member_id: bytes(20_000)})
    assert world.answer(refused, SyncGroupResponse).error == ErrorCode.POLICY_VIOLATION
    assert anna.synced(anna.sync({anna.member_id: bytes(10_000)})) == bytes(10_000)


def test_only_so_many_requests_wait() -> None:
    """Over the limit the answer is retriable, and comes at once."""
    world = World(CoordinatorConfig(pending_max=1))
    anna, bert = Client(world, "anna"), Client(world, "bert")
    first = anna.join()
    second = bert.join()
    busy = world.answer(second, JoinGroupResponse)
    assert busy.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.pass_time(500)
    anna.learn(first)


def test_what_is_not_in_the_table_raises() -> None:
    """A transition that is not drawn is a bug."""
    for state in GroupState:
        for event in GroupEvent:
            if (state, event) in NEXT_STATE:
                assert next_state(state, event) == NEXT_STATE[state, event]
            else:
                with pytest.raises(IllegalTransitionError, match=event.name):
                    next_state(state, event)


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_timeout_ms_min": 1_000},
        {"session_timeout_ms_max": 100},
        {"members_per_group_max": 100_000},
        {"group_bytes_max": 8 * 1024 * 1024},
        {"text_bytes_max": 30_000},
        {"groups_max": 0},
    ],
)
def test_a_configuration_cannot_be_wrong(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        CoordinatorConfig(**wrong)


def test_ids_are_lent_to_a_bounded_number_of_clients() -> None:
    """Each costs its client one request, in a group of its own: the oldest is taken back."""
    world = World(CoordinatorConfig(members_max=3))
    clients = [Client(world, "x", group=ConsumerGroupId(f"g{number}")) for number in range(5)]
    lent = [world.answer(one.send_join(), JoinGroupResponse) for one in clients]
    assert [one.error for one in lent] == [ErrorCode.MEMBER_ID_REQUIRED] * 5
    for one, answer in zip(clients, lent, strict=True):
        one.member_id = answer.member_id
    late = world.answer(clients[0].send_join(), JoinGroupResponse)
    assert late.error == ErrorCode.UNKNOWN_MEMBER_ID, "taken back: it asks for another"
    token = clients[4].send_join()
    world.pass_time(REBALANCE_MS)
    assert clients[4].learn(token).generation == 1


def test_ids_that_nobody_joins_with_fill_no_group() -> None:
    """A client asks for ids and never comes back, each with the longest session timeout there
    is."""
    world = World(CoordinatorConfig(members_per_group_max=10))
    for _ in range(50):
        flood = Client(world, "flood", session_ms=1_800_000)
        assert world.answer(flood.send_join(), JoinGroupResponse).error
    honest = Client(world, "honest")
    token = honest.join()
    world.pass_time(REBALANCE_MS)
    assert honest.learn(token).generation == 1


def test_members_are_not_pushed_out_by_lent_ids() -> None:
    """Only ids without a member are taken back."""
    world = World(CoordinatorConfig(members_per_group_max=1))
    member, other = Client(world, "member"), Client(world, "other")
    token = member.join()
    world.pass_time(1_000)
    member.learn(token)
    full = world.answer(other.send_join(), JoinGroupResponse)
    assert full.error == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("limit", ["members_per_group_max", "members_max"])
def test_a_group_lives_on_while_its_last_lent_id_is_taken_back_for_the_next_client(
    limit: str,
) -> None:
    """The only id of the group makes room for another one of the same group."""
    world = World(CoordinatorConfig(**{limit: 1}))
    first, second = Client(world, "first"), Client(world, "second")
    assert world.answer(first.send_join(), JoinGroupResponse).error
    token = second.join()
    world.pass_time(REBALANCE_MS)
    assert second.learn(token).generation == 1


def test_a_group_forgets_the_protocols_that_nobody_offers_any_more() -> None:
    """A member that joins again and again, each time with new names, leaves none behind."""
    group = LiveGroup(GROUP)
    member = LiveMember(MemberId("m"), None, "c", "h", 1, 1, (Protocol("first", b""),))
    group.add(member)
    for number in range(100):
        offers = (Protocol(f"p{number}", b""),)
        join = JoinGroup(group=GROUP, session_timeout_ms=1, protocol_type="c", protocols=offers)
        group.change(member, join)
    assert dict(group.offered) == {"p99": 1}
    group.discard(member)
    assert not group.offered


def test_a_lent_id_is_kept_for_a_minute_at_most() -> None:
    world = World()
    client = Client(world, "slow", session_ms=1_800_000)
    client.member_id = world.answer(client.send_join(), JoinGroupResponse).member_id
    world.pass_time(61_000)
    assert world.answer(client.send_join(), JoinGroupResponse).error == ErrorCode.UNKNOWN_MEMBER_ID
