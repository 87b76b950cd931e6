"""A client's knowledge of the cluster never goes back to an older leader."""

import attrs

from wire.cluster_view import ClusterView, TopicPartition
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PLACE = TopicPartition("t", 0)
FIRST, SECOND = b"1" * 16, b"2" * 16


def told(leader: int, epoch: int, *, topic_id: bytes = FIRST, error: int = 0) -> MetadataResponse:
    topic = MetadataResponseTopic(
        error, "t", topic_id, partitions=[MetadataResponsePartition(0, 0, leader, epoch, [1, 2])]
    )
    brokers = [MetadataResponseBroker(node, f"host-{node}", 9092) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=[topic])


def leader_of(view: ClusterView) -> tuple[int, int]:
    partition = view.partition(PLACE)
    assert partition is not None
    return partition.leader, partition.epoch


def test_an_older_epoch_is_ignored() -> None:
    """A node that lags must not send us back; a node without epochs is believed."""
    view = ClusterView()
    view.take(told(1, 5), ["t"])
    view.take(told(2, 4), ["t"])
    assert leader_of(view) == (1, 5)
    view.take(told(2, 5), ["t"])
    assert leader_of(view) == (2, 5)
    old = ClusterView()
    old.take(told(1, -1), ["t"])
    old.take(told(2, -1), ["t"])
    assert leader_of(old) == (2, -1)


def test_a_topic_made_anew_begins_anew() -> None:
    view = ClusterView()
    view.take(told(1, 5), ["t"])
    view.take(told(2, 0, topic_id=SECOND), ["t"])
    assert leader_of(view) == (2, 0)
    assert view.name_of(SECOND) == "t"
    assert view.name_of(FIRST) is None


def test_a_hint_is_taken_only_if_it_is_newer() -> None:
    """KIP-951: the refusal names the new leader and its address."""
    view = ClusterView()
    view.take(told(1, 5), ["t"])
    before = view.changes
    assert not view.learn(PLACE, LeaderIdAndEpoch(2, 5), [])
    assert not view.learn(PLACE, LeaderIdAndEpoch(-1, 9), [])
    assert not view.learn(PLACE, LeaderIdAndEpoch(9, 6), []), "nobody knows where node 9 is"
    assert not view.learn(TopicPartition("u", 0), LeaderIdAndEpoch(2, 6), [])
    assert (leader_of(view), view.changes) == ((1, 5), before)
    assert view.learn(PLACE, LeaderIdAndEpoch(9, 6), [NodeEndpoint(9, "host-9", 1)])
    assert (leader_of(view), view.nodes[9].host) == ((9, 6), "host-9")
    assert view.changes == before + 1


def test_what_is_gone_is_forgotten() -> None:
    view = ClusterView()
    view.take(told(1, 5), ["t"])
    view.take(told(1, 5, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ["t"])
    assert view.leader(PLACE) is None
    assert view.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    view.take(told(1, 5), ["t"])
    assert not view.errors
    view.take(attrs.evolve(told(1, 5), topics=[]), None)
    assert not view.topics, "an answer about all topics did not name it"


def test_nothing_new_is_no_change() -> None:
    view = ClusterView()
    view.take(told(1, 5), ["t"])
    before = view.changes
    view.take(told(1, 5), ["t"])
    assert view.changes == before
