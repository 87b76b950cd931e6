"""Stories about what Evenkeel does not have, or has in another way: what tools ask all the same."""

from collections.abc import Sequence
from typing import Any, Final

from tests.broker.batches import batch
from tests.compat.side_by_side.peer import Peer, Which
from tests.compat.side_by_side.records import produce
from wire.messages.configs import ListConfigResourcesRequest
from wire.messages.logs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from wire.messages.metadata import (
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    PartitionCursor,
    PartitionsOfTopic,
    QuorumPartition,
    QuorumTopic,
    UnregisterBrokerRequest,
)
from wire.messages.producer_ids import DescribeProducersRequest, DescribeProducersTopic
from wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from wire.messages.security import (
    AclCreation,
    AlterClientQuotasRequest,
    AlterQuotaEntry,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    QuotaChange,
    QuotaEntity,
    QuotaFilter,
    RenewDelegationTokenRequest,
    ScramUserName,
)
from wire.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest

NEWEST: Final = Which.NEWEST
ANY: Final = 1
TOPIC: Final = 2
LITERAL: Final = 3


def security(peer: Peer) -> None:
    acl = lambda what, *rest: peer.ask(what, DescribeAclsRequest(*rest))  # noqa: E731
    acl("of everything", ANY, None, ANY, None, None, ANY, ANY)
    acl("of a topic", TOPIC, "t", LITERAL, "User:x", "*", 3, 3)
    made = AclCreation(TOPIC, "t", LITERAL, "User:x", "*", 3, 3)
    peer.ask("one", CreateAclsRequest([made]))
    peer.ask("without a principal", CreateAclsRequest([AclCreation(TOPIC, "t")]))
    every = DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    peer.ask("all", DeleteAclsRequest([every]))
    peer.ask("all, twice", DeleteAclsRequest([every, every]))
    peer.ask("of nobody", DescribeDelegationTokenRequest([]))
    peer.ask("of all", DescribeDelegationTokenRequest(None))
    peer.ask("for a day", CreateDelegationTokenRequest(None, None, [], 86_400_000))
    peer.ask("one that is not there", RenewDelegationTokenRequest(b"x", 1_000))
    peer.ask("one that is not there", ExpireDelegationTokenRequest(b"x", 1_000))
    peer.ask("of all", DescribeUserScramCredentialsRequest(None))
    peer.ask("of nobody", DescribeUserScramCredentialsRequest([]))
    peer.ask("of one", DescribeUserScramCredentialsRequest([ScramUserName("x")]))
    peer.ask("of one twice", DescribeUserScramCredentialsRequest([ScramUserName("x")] * 2))
    peer.ask("without a name", DescribeUserScramCredentialsRequest([ScramUserName("")]))


def logins(peer: Peer) -> None:
    """Kafka closes the connection after a refusal here, so each is asked on its own."""
    for mechanism in ("PLAIN", ""):
        peer.ask(f"mechanism {mechanism!r}", SaslHandshakeRequest(mechanism), NEWEST)
        peer.close()
    peer.ask("no bytes", SaslAuthenticateRequest(b""), NEWEST)
    peer.close()


def quotas(peer: Peer) -> None:
    def ask(what: str, *rows: QuotaFilter, strict: bool = False) -> None:
        peer.ask(what, DescribeClientQuotasRequest(list(rows), strict))

    ask("of all")
    ask("of all, strictly", strict=True)
    ask("of a user", QuotaFilter("user", 0, "x"))
    ask("of any user", QuotaFilter("user", 2, None))
    ask("of the default user", QuotaFilter("user", 1, None))
    ask("of a kind that is not there", QuotaFilter("nonsense", 0, "x"))
    ask("of no kind", QuotaFilter("", 0, "x"))
    ask("of a user twice", QuotaFilter("user", 0, "x"), QuotaFilter("user", 0, "y"))
    ask("with a match that is not there", QuotaFilter("user", 9, "x"))
    ask("of a user without a name", QuotaFilter("user", 0, None))
    entry = AlterQuotaEntry([QuotaEntity("user", "x")], [QuotaChange("nonsense", 1.0, False)])
    peer.ask("what is not known", AlterClientQuotasRequest([entry], True))


def transactions(peer: Peer) -> None:
    peer.ask("one that is not there", DescribeTransactionsRequest(["tx"]))
    peer.ask("one twice", DescribeTransactionsRequest(["tx", "tx"]))
    peer.ask("one without a name", DescribeTransactionsRequest([""]))
    peer.ask("all", ListTransactionsRequest())
    peer.ask("of a state", ListTransactionsRequest(["Ongoing"]))
    peer.ask("of a state that is not there", ListTransactionsRequest(["Nonsense", "Empty"]))
    peer.ask("of a producer", ListTransactionsRequest([], [77]))
    long_ones = ListTransactionsRequest(duration_filter=1_000)
    peer.ask("long ones", long_ones, least=1)
    like = lambda pattern: ListTransactionsRequest(transactional_id_pattern=pattern)  # noqa: E731
    peer.ask("like a pattern", like("t.*"), least=2)
    peer.ask("like a pattern that is none", like("t("), least=2)
    peer.ask("like an empty pattern", like(""), least=2)


def producers(peer: Peer) -> None:
    peer.topic("pr")
    peer.write(produce("pr", batch("a")))

    def ask(what: str, name: str, *parts: int) -> None:
        peer.ask(what, DescribeProducersRequest([DescribeProducersTopic(name, list(parts))]))

    ask("of a topic without any", "pr", 0)
    ask("of an unknown topic", "nobody", 0)
    ask("of an illegal topic", "a/b", 0)
    ask("of no topic", "", 0)
    ask("of an unknown partition", "pr", 9)
    ask("of a negative partition", "pr", -1)
    ask("of no partitions", "pr")
    ask("of a partition twice", "pr", 0, 0)


def partitions_described(peer: Peer) -> None:
    peer.topic("dp", partitions=3)
    peer.topic("dq", partitions=1)

    def ask(
        what: str, *names: str, most: int = 2_000, cursor: tuple[str, int] | None = None
    ) -> None:
        rows = [PartitionsOfTopic(name) for name in names]
        at = None if cursor is None else PartitionCursor(*cursor)
        peer.ask(what, DescribeTopicPartitionsRequest(rows, most, at))

    ask("of a topic", "dp")
    ask("of a topic twice", "dp", "dp")
    ask("of an unknown topic", "nobody")
    ask("of an illegal topic", "a/b")
    ask("of no topic", "")
    ask("two of three", "dp", most=2)
    ask("of two topics, one partition", "dp", "dq", most=1)
    ask("at most 0", "dp", most=0)
    ask("at most -1", "dp", most=-1)
    ask("from the second", "dp", cursor=("dp", 1))
    ask("from the last of one", "dp", "dq", cursor=("dp", 2))
    ask("from beyond the end", "dp", "dq", cursor=("dp", 9))
    ask("from a negative partition", "dp", cursor=("dp", -1))
    ask("from an unknown topic", "dp", "dq", cursor=("dp0", 0))
    ask("from a topic that is not asked for", "dq", cursor=("dp", 0))


def the_cluster(peer: Peer) -> None:
    def quorum(what: str, topic: str, *parts: int) -> None:
        rows = [QuorumTopic(topic, [QuorumPartition(one) for one in parts])]
        peer.ask(what, DescribeQuorumRequest(rows), NEWEST)

    quorum("of another topic", "nobody", 0)
    quorum("of another partition", "__cluster_metadata", 1)
    quorum("of no partition", "__cluster_metadata")
    peer.ask("of a node that is not there", UnregisterBrokerRequest(77))
    peer.ask("of a negative node", UnregisterBrokerRequest(-1))
    for kind in (2, 4, 8, 16, 32, 0, 77):
        peer.ask(f"of kind {kind}", ListConfigResourcesRequest([kind]), least=1)
    peer.ask("of a kind twice", ListConfigResourcesRequest([16, 16]), least=1)
    peer.topic("dir")
    moved = [AlterReplicaLogDirTopic("dir", [0])]
    peer.ask("to nowhere", AlterReplicaLogDirsRequest([AlterReplicaLogDir("/nowhere", moved)]))
    moved = [AlterReplicaLogDirTopic("nobody", [0])]
    peer.ask(
        "of an unknown topic", AlterReplicaLogDirsRequest([AlterReplicaLogDir("/nowhere", moved)])
    )
    peer.ask("no path", AlterReplicaLogDirsRequest([AlterReplicaLogDir("", moved)]))


STORIES: Final[Sequence[Any]] = (
    security,
    logins,
    quotas,
    transactions,
    producers,
    partitions_described,
    the_cluster,
)
