"""kafka-python: its defaults wherever nothing else is asked for."""

import time
from functools import partial

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import TopicPartition
from told import Asked, acked, failed, main, read, tell, values

WAIT_S = 20
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def produce(asked: Asked) -> None:
    producer = KafkaProducer(
        bootstrap_servers=asked.bootstrap.split(","),
        acks=asked.acks if asked.acks == "all" else int(asked.acks),
        enable_idempotence=asked.idempotent,
        compression_type=None if asked.codec == "none" else asked.codec,
    )

    def stored(value: bytes, told: object) -> None:
        acked(value, told.partition, told.offset)

    for value in values(asked):
        if value is None:
            time.sleep(0.005)
            continue
        sent = producer.send(asked.topic, value, partition=0)
        sent.add_callback(partial(stored, value))
        sent.add_errback(failed)
    producer.flush(WAIT_S)
    producer.close(WAIT_S)


def consume(asked: Asked) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=asked.bootstrap.split(","), auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(asked.topic, 0)])
    _read(consumer, asked)
    consumer.close()


def _read(consumer: KafkaConsumer, asked: Asked) -> None:
    left = asked.count
    while left > 0 and time.monotonic() < asked.until:
        for records in consumer.poll(timeout_ms=100, max_records=left).values():
            for one in records:
                read(one.value, one.partition, one.offset)
                left -= 1


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: object) -> None:
        owned = sorted(one.partition for one in self._consumer.assignment())
        tell("rebalance", partitions=owned)

    def on_partitions_revoked(self, revoked: object) -> None: ...


def group(asked: Asked) -> None:
    more = {}
    if asked.assignor:
        more["partition_assignment_strategy"] = [ASSIGNORS[asked.assignor]]
    if asked.instance:
        more["group_instance_id"] = asked.instance
    consumer = KafkaConsumer(
        bootstrap_servers=asked.bootstrap.split(","),
        group_id=asked.group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1_000,
        **more,
    )
    consumer.subscribe([asked.topic], listener=Listener(consumer))
    _read(consumer, asked)
    consumer.close()  # commits what was read


main({"produce": produce, "consume": consume, "group": group})
