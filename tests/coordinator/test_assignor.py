"""Plans for groups that the broker assigns: fair, exclusive, complete and sticky."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.model import MemberId
from coordinator.replicated.assignor import (
    ASSIGNORS,
    NOTHING,
    RANGE,
    UNIFORM,
    MemberSubscription,
    Share,
    share_out,
)

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


def plan(
    assignor: str,
    wishes: dict[str, set[bytes]],
    partitions: dict[bytes, int],
    before: dict[str, Share] | None = None,
) -> dict[str, Share]:
    asked = {
        MemberId(name): MemberSubscription(frozenset(topics), (before or {}).get(name, NOTHING))
        for name, topics in wishes.items()
    }
    return {str(name): share for name, share in share_out(assignor, asked, partitions).items()}


def test_range_gives_the_same_numbers_of_every_topic() -> None:
    shares = plan(RANGE, {"x": {A, B}, "y": {A, B}}, {A: 3, B: 4})
    assert shares["x"] == {(A, 0), (A, 1), (B, 0), (B, 1)}
    assert shares["y"] == {(A, 2), (B, 2), (B, 3)}


def test_a_newcomer_takes_only_what_is_fair() -> None:
    one = plan(UNIFORM, {"x": {A}}, {A: 6})
    two = plan(UNIFORM, {"x": {A}, "y": {A}}, {A: 6}, one)
    assert two["x"] < one["x"]
    assert (len(two["x"]), len(two["y"])) == (3, 3)
    three = plan(UNIFORM, {"x": {A}, "y": {A}, "z": {A}}, {A: 6}, two)
    assert three["x"] < two["x"]
    assert three["y"] < two["y"]


def test_who_is_gone_leaves_the_others_what_they_have() -> None:
    three = plan(UNIFORM, {"x": {A}, "y": {A}, "z": {A}}, {A: 6})
    two = plan(UNIFORM, {"x": {A}, "z": {A}}, {A: 6}, three)
    assert three["x"] < two["x"]
    assert three["z"] < two["z"]


def test_surplus_members_have_nothing() -> None:
    shares = plan(UNIFORM, {name: {A} for name in "vwxyz"}, {A: 4})
    assert sorted(map(len, shares.values())) == [0, 1, 1, 1, 1]


def test_subscriptions_may_differ() -> None:
    """x alone can take B, so A goes to y."""
    shares = plan(UNIFORM, {"x": {A, B}, "y": {A}}, {A: 4, B: 4})
    assert shares == {"x": {(B, n) for n in range(4)}, "y": {(A, n) for n in range(4)}}


topics_of = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 7))
wishes_of = st.dictionaries(st.sampled_from("uvwxyz"), st.sets(st.sampled_from([A, B, C])))


@given(st.sampled_from(ASSIGNORS), st.lists(st.tuples(wishes_of, topics_of), min_size=1))
def test_whatever_comes_every_partition_has_one_owner_who_wants_it(
    assignor: str, rounds: list[tuple[dict[str, set[bytes]], dict[bytes, int]]]
) -> None:
    before: dict[str, Share] = {}
    for wishes, partitions in rounds:
        shares = plan(assignor, wishes, partitions, before)
        given_out = [part for share in shares.values() for part in share]
        wanted = frozenset(topic for topics in wishes.values() for topic in topics)
        assert sorted(given_out) == sorted(
            (topic, n)
            for topic, count in partitions.items()
            if topic in wanted
            for n in range(count)
        )
        assert all(topic in wishes[name] for name, share in shares.items() for topic, _ in share)
        if assignor == UNIFORM:
            _assert_level(shares, wishes)
            assert plan(assignor, wishes, partitions, shares) == shares  # and it stays so
        before = shares


def _assert_level(shares: dict[str, Share], wishes: dict[str, set[bytes]]) -> None:
    for rich, share in shares.items():
        for topic in {topic for topic, _ in share}:
            others = [len(shares[name]) for name in wishes if topic in wishes[name]]
            assert len(share) - min(others) < 2, f"{rich} has {len(share)}, others {others}"
