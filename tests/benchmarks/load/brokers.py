"""A broker for the load generator: real sockets, real frames, answers as late as a test wants.

It has one topic, leads all of its partitions, stores nothing, and counts what it gets.
"""

import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wire.apis import (
    RequestHeader,
    Response,
    decode_request,
    encode_response,
    parse_request_header,
)
from wire.framing import MIB, FrameAssembler, FrameLimits
from wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from wire.records.batch import iterate_records, produced_batch

NODE = 7
Judge = Callable[[int], int]
"""From the number of a produce request, counted from 0, to its error code; it may sleep, which
stops the broker."""


class TinyBroker:
    def __init__(self, topic: str, partitions: int, judge: Judge) -> None:
        self.topic, self.partitions, self._judge = topic, partitions, judge
        self.records: Counter[int] = Counter()
        """By partition."""
        self._produced = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve(self) -> None:
        try:
            while not self.stop.is_set():
                for key, _ in self._selector.select(0.02):
                    if key.fileobj is self._listener:
                        accepted, _ = self._listener.accept()
                        assembler = FrameAssembler(FrameLimits(default=16 * MIB))
                        self._selector.register(accepted, selectors.EVENT_READ, assembler)
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self._receive(key.fileobj, key.data)
        finally:
            for key in list(self._selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
            self._selector.close()

    def _receive(self, connection: socket.socket, assembler: FrameAssembler) -> None:
        try:
            size = connection.recv_into(assembler.buffer_to_fill())
        except ConnectionResetError:  # a client that failed has left answers unread
            size = 0
        if not size:
            self._selector.unregister(connection)
            connection.close()
            return
        assembler.received(size)
        while connection.fileno() >= 0 and (frame := assembler.take()) is not None:
            header = parse_request_header(frame.data)
            assert isinstance(header, RequestHeader)
            answer = self._answer(decode_request(header, frame.data))
            try:
                connection.sendall(b"".join(encode_response(header, answer)))
            except (ConnectionResetError, BrokenPipeError):
                self._selector.unregister(connection)
                connection.close()

    def _answer(self, request: object) -> Response:
        if isinstance(request, MetadataRequest):
            return self._metadata()
        assert isinstance(request, ProduceRequest)
        assert request.acks == -1
        (topic,) = request.topic_data
        assert topic.name == self.topic
        (data,) = topic.partition_data
        batch = produced_batch(data.records)
        error = self._judge(self._produced)
        self._produced += 1
        self.records[data.index] += len(list(iterate_records(batch)))
        answer = PartitionProduceResponse(index=data.index, error_code=error, base_offset=0)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=self.topic, partition_responses=[answer])]
        )

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=NODE,
                leader_epoch=1,
                replica_nodes=[NODE],
                isr_nodes=[NODE],
                offline_replicas=[],
            )
            for index in range(self.partitions)
        ]
        topic = MetadataResponseTopic(error_code=0, name=self.topic, partitions=partitions)
        broker = MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[broker], topics=[topic])


@contextmanager
def tiny_broker(
    topic: str = "load", partitions: int = 3, judge: Judge = lambda _number: 0
) -> Iterator[TinyBroker]:
    broker = TinyBroker(topic, partitions, judge)
    thread = threading.Thread(target=broker.serve)
    thread.start()
    try:
        yield broker
    finally:
        broker.stop.set()
        thread.join()


def stall_once(at_number: int, seconds: float) -> Judge:
    """The broker hangs for a while at one request; all that arrive meanwhile wait."""

    def judge(number: int) -> int:
        if number == at_number:
            time.sleep(seconds)
        return 0

    return judge
