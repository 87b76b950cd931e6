"""Assignors: each partition once, evenly, with few moves, and never to two members at a time."""

from collections.abc import Sequence

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.config import Assignor
from evenkeel.consumer.assignors import share
from evenkeel.sharing import Member, Shares
from wire.cluster_view import TopicPartition

TOPICS = ["a", "b", "c"]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
quick = settings(max_examples=60, deadline=None, database=None)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Member], dict[str, int]]:
    """Members with any subscriptions and claims, also absurd ones."""
    partitions = draw(counts)
    places = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 9))
    members = [
        Member(
            f"m{number}",
            frozenset(draw(st.sets(st.sampled_from(TOPICS)))),
            draw(st.none() | st.just(f"i{number}")),
            draw(st.frozensets(places, max_size=8)),
            draw(st.integers(-1, 3)),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return members, partitions


def wanted(members: Sequence[Member], partitions: dict[str, int]) -> set[TopicPartition]:
    topics = {topic for member in members for topic in member.topics} & partitions.keys()
    return {TopicPartition(topic, n) for topic in topics for n in range(partitions[topic])}


def check_once(shares: Shares, members: Sequence[Member], everything: set[TopicPartition]) -> None:
    given_out = [place for places in shares.values() for place in places]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= everything
    topics = {member.id: member.topics for member in members}
    assert all(one.topic in topics[m] for m, places in shares.items() for one in places)
    assert shares.keys() == topics.keys()


@quick
@given(groups(), st.sampled_from([Assignor.RANGE, Assignor.ROUND_ROBIN]))
def test_eager_sharing_is_complete(
    group: tuple[list[Member], dict[str, int]], kind: Assignor
) -> None:
    members, partitions = group
    shares = share(kind, members, partitions)
    check_once(shares, members, wanted(members, partitions))
    assert sum(map(len, shares.values())) == len(wanted(members, partitions))


@quick
@given(groups())
def test_cooperative_rounds_end_even_and_complete(
    group: tuple[list[Member], dict[str, int]],
) -> None:
    """Round by round, as members give partitions up: never two owners, and soon nothing moves."""
    members, partitions = group
    everything = wanted(members, partitions)
    for round_number in range(1, 5):
        shares = share(Assignor.COOPERATIVE_STICKY, members, partitions)
        check_once(shares, members, everything)
        if round_number > 1:  # in the first round the claims may be anything
            for member in members:
                others = {p for one in members if one is not member for p in one.owned}
                taken = set(shares[member.id]) - member.owned
                assert not taken & others, "somebody else has not let go of it yet"
        before = [member.owned for member in members]
        members = [
            attrs.evolve(one, owned=frozenset(shares[one.id]), generation=100 + round_number)
            for one in members
        ]
        if before == [member.owned for member in members]:
            break
    else:
        raise AssertionError("it still moves after four rounds")
    assert set().union(*(member.owned for member in members)) == everything
    if len({member.topics for member in members}) == 1:
        sizes = [len(member.owned) for member in members]
        assert max(sizes) - min(sizes) <= 1


def test_D11_range_and_round_robin_are_kafkas() -> None:
    """The examples of Kafka's own documentation: two topics of three partitions, two members."""
    members = [Member("c0", frozenset({"t0", "t1"})), Member("c1", frozenset({"t0", "t1"}))]
    ranged = share(Assignor.RANGE, members, {"t0": 3, "t1": 3})
    assert [str(one) for one in ranged["c0"]] == ["t0/0", "t0/1", "t1/0", "t1/1"]
    assert [str(one) for one in ranged["c1"]] == ["t0/2", "t1/2"]
    round_robin = share(Assignor.ROUND_ROBIN, members, {"t0": 3, "t1": 3})
    assert [str(one) for one in round_robin["c0"]] == ["t0/0", "t0/2", "t1/1"]
    assert [str(one) for one in round_robin["c1"]] == ["t0/1", "t1/0", "t1/2"]


def test_D11_round_robin_passes_over_who_does_not_want_it() -> None:
    members = [
        Member("c0", frozenset({"t0"})),
        Member("c1", frozenset({"t0", "t1"})),
        Member("c2", frozenset({"t0", "t1", "t2"})),
    ]
    shares = share(Assignor.ROUND_ROBIN, members, {"t0": 1, "t1": 2, "t2": 3})
    assert [str(one) for one in shares["c0"]] == ["t0/0"]
    assert [str(one) for one in shares["c1"]] == ["t1/0"]
    assert [str(one) for one in shares["c2"]] == ["t1/1", "t2/0", "t2/1", "t2/2"]


def test_a_newcomer_takes_only_what_is_too_much() -> None:
    """Nine partitions, two members, a third comes: three move, the others stay."""
    places = [TopicPartition("t", number) for number in range(9)]
    old = [
        Member("a", frozenset({"t"}), owned=frozenset(places[:5]), generation=4),
        Member("b", frozenset({"t"}), owned=frozenset(places[5:]), generation=4),
    ]
    first = share(Assignor.COOPERATIVE_STICKY, [*old, Member("c", frozenset({"t"}))], {"t": 9})
    assert [len(first[m]) for m in "abc"] == [3, 3, 0]
    assert set(first["a"]) < old[0].owned
    assert set(first["b"]) < old[1].owned


def test_of_two_who_claim_one_the_later_is_believed() -> None:
    """A member that was away for a generation does not take back what it had."""
    place = TopicPartition("t", 0)
    members = [
        Member("old", frozenset({"t"}), owned=frozenset({place}), generation=3),
        Member("new", frozenset({"t"}), owned=frozenset({place}), generation=4),
    ]
    assert share(Assignor.COOPERATIVE_STICKY, members, {"t": 1})["new"] == [place]
