"""A member that is behind starts no election while its group makes progress: it would only disturb.

300 groups of a returning node waited for their turn to learn for longer than `Timing.heard_ns`.
Each of them prepared again and again; the masters met those promises and began anew. Clients had no
answer for ten seconds.
"""

from paxos.ids import BALLOT_ZERO, MS, GroupId, NodeId, Slot
from paxos.liveness.questions import LEARNING_MAX
from paxos.liveness.standstill import UNANSWERED, Standstill
from paxos.messages import Behind, Commit, Learn, Prepare, Progress, Promise
from paxos.proposer import Role
from paxos.timing import Timing
from tests.paxos.core import GROUP, LIFE, Member, ballot, member, messages

TICK_MS = 20
FOREVER = 10**12 * MS
BEGIN = 900


def says(applied: int) -> Progress:
    return Progress(GROUP, Slot(applied), Slot(applied), BALLOT_ZERO, LIFE)


def returned() -> Member:
    """It was away, and its peers have just told it their positions."""
    one = member()
    one.give(1, says(BEGIN))
    one.give(2, says(BEGIN))
    return one


def waiting() -> Member:
    """As many groups as may ask at a time ask before this one."""
    one = returned()
    for other in range(LEARNING_MAX):
        assert one.multi.questions.may_ask(0, GroupId(100 + other), NodeId(1), FOREVER)
    return one


def tries(one: Member, ms: int, *, grows_every_ms: int = 0) -> tuple[int, int]:
    """How often it prepares and asks for entries in that time, of a group that grows or stands
    still."""
    prepares = asked = 0
    for at in range(0, ms, TICK_MS):
        if at % 100 == 0:
            applied = BEGIN + (at // grows_every_ms if grows_every_ms else 0)
            one.give(1, says(applied))
            one.give(2, says(applied))
        step = one.tick(TICK_MS)
        prepares += len(messages(step.after, Prepare)) // 2
        asked += sum(isinstance(learn, Learn) for learn in messages(step.before))
    return prepares, asked


def test_a_group_that_waits_its_turn_to_learn_does_not_prepare() -> None:
    assert tries(waiting(), 20_000, grows_every_ms=200) == (0, 0)


def test_renewals_are_enough_to_show_that_there_is_a_master() -> None:
    timing = Timing()
    one = waiting()
    assert tries(one, 20_000, grows_every_ms=timing.renew_every_ns // MS) == (0, 0)


def test_answers_that_take_long_are_no_reason_either() -> None:
    prepares, asked = tries(returned(), 10_000, grows_every_ms=200)
    assert prepares == 0
    assert asked > 5


def test_what_a_master_commits_shows_it_as_well() -> None:
    """The peers' reports of their positions may come too slowly."""
    one = waiting()
    for at in range(200):
        slot = Slot(BEGIN + at)
        one.give(1, Commit(GROUP, ballot(1, 1), slot, slot))
        one.multi.heard[NodeId(2)] = one.now_ns
        assert not any(messages(one.tick(50).after, Prepare))


def test_a_group_that_stands_still_is_prepared_for_whosever_turn_it_is() -> None:
    """The member that is ahead may be deaf: this group must not wait for the others' questions."""
    prepares, asked = tries(waiting(), 6_000)
    assert prepares > 0
    assert asked == 0


def test_who_says_more_and_more_and_has_nothing_is_not_believed_for_ever() -> None:
    timing = Timing()
    prepares, _ = tries(returned(), (UNANSWERED + 5) * timing.heard_ns // MS, grows_every_ms=200)
    assert prepares > 0


def test_after_a_prepare_that_was_refused_it_waits_as_before() -> None:
    one = returned()
    one.prepare()
    mine = one.replica.proposer.ballot
    one.give(0, Promise(GROUP, mine, ()))
    assert tries(one, 10_000, grows_every_ms=200)[0] == 0


def test_a_number_that_was_wrong_counts_until_nothing_is_missed() -> None:
    one = member()
    one.give(1, says(10**9))
    one.tick()
    one.give(1, says(0))
    one.tick()
    still = one.replica.standstill
    assert not one.replica.learner.behind
    one.give(1, says(5))
    one.tick()
    assert still.group_since == one.now_ns


def test_patience_covers_a_renewal_that_was_lost() -> None:
    timing = Timing(lease_ns=12_000 * MS, renew_every_ns=4_000 * MS)
    one = member(timing=timing)
    one.give(1, says(BEGIN))
    one.tick()
    still: Standstill = one.replica.standstill
    assert not still.is_dead(one.now_ns + 7_900 * MS, timing)
    assert still.is_dead(one.now_ns + 8_100 * MS, timing)


def candidate(*, stands_still: bool) -> Member:
    """It prepares although one member is ahead, which answers nothing or says Behind."""
    one = returned()
    for at in range(0, 4_000, TICK_MS):
        one.give(2, says(BEGIN if stands_still else BEGIN + at // 200))
        one.tick(TICK_MS)
        if one.replica.proposer.role is Role.PREPARING:
            return one
    one.prepare()
    return one


def test_where_the_group_stands_still_a_quorum_without_the_one_ahead_will_do() -> None:
    """The one ahead has lost those entries and cannot teach them: it says Behind for ever
    (docs/adr/0046)."""
    one = candidate(stands_still=True)
    mine = one.replica.proposer.ballot
    one.give(2, Behind(GROUP, mine, Slot(BEGIN)))
    assert one.replica.proposer.role is Role.PREPARING
    one.give(0, Promise(GROUP, mine, ()))
    one.give(1, Promise(GROUP, mine, ()))
    assert one.replica.proposer.role is Role.LEADER


def test_where_it_gets_on_who_is_behind_learns_first() -> None:
    one = candidate(stands_still=False)
    one.give(2, Behind(GROUP, one.replica.proposer.ballot, Slot(BEGIN)))
    assert one.replica.proposer.role is Role.FOLLOWER
