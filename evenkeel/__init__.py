"""Evenkeel's own client, on trio, for Evenkeel and any other Kafka cluster: docs/client.md."""

from evenkeel.admin import Admin
from evenkeel.config import (
    Acks,
    Assignor,
    ClientConfig,
    ConsumerConfig,
    Isolation,
    OffsetReset,
    ProducerConfig,
)
from evenkeel.consumer import (
    Consumer,
    ConsumerRecord,
    ConsumerStatistics,
    Records,
)
from evenkeel.coordinator import Committed
from evenkeel.descriptions import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupMember,
    PartitionDescription,
    PartitionProgress,
    Reassignment,
    Setting,
    TopicDescription,
)
from evenkeel.errors import (
    BrokerError,
    BufferFullError,
    ClosedError,
    CommitError,
    ConfigurationError,
    DeliveryError,
    DisconnectedError,
    EvenkeelError,
    FencedError,
    ListenerError,
    OffsetError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)
from evenkeel.listener import RebalanceListener
from evenkeel.lookups import FoundOffset
from evenkeel.metadata import TopicPartition
from evenkeel.producer import Delivery, Producer, ProducerStatistics, RecordMetadata
from evenkeel.sharing import Member, PartitionAssignor, Shares
from wire.batch import Compression

__all__ = [
    "Producer",
    "ProducerConfig",
    "Delivery",
    "RecordMetadata",
    "Acks",
    "Compression",
    "ProducerStatistics",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConsumerStatistics",
    "Records",
    "RebalanceListener",
    "Committed",
    "FoundOffset",
    "Assignor",
    "PartitionAssignor",
    "Member",
    "Shares",
    "Isolation",
    "OffsetReset",
    "Admin",
    "ClusterDescription",
    "TopicDescription",
    "PartitionDescription",
    "Setting",
    "Reassignment",
    "GroupListing",
    "GroupDescription",
    "GroupMember",
    "PartitionProgress",
    "ClientConfig",
    "TopicPartition",
    "EvenkeelError",
    "BrokerError",
    "BufferFullError",
    "ClosedError",
    "CommitError",
    "ConfigurationError",
    "DeliveryError",
    "DisconnectedError",
    "FencedError",
    "ListenerError",
    "OffsetError",
    "TimedOutError",
    "UnreachableError",
    "UnsupportedError",
]
