"""At the end of a world with brokers: every node has the same, and can read it back from its log.

Consumers only see the master's copy; what another node has lost would show when it becomes master.
"""

from broker.reads.reader import Got, Key, Reader
from broker.requests.context import Broker
from broker.state_machine.partition_image import encode_partition
from paxos.ids import REGISTRY_GROUP, GroupId
from simulator.checkers.partition_logs import PartitionLogs
from simulator.environment.violation import Violation
from storage.errors import StorageError


class Copies:
    def __init__(self, logs: PartitionLogs) -> None:
        self._logs = logs
        self._consumer_groups: dict[GroupId, list[bytes]] = {}
        self._registry = b""
        self._partitions: dict[int, bytes] = {}
        self.count = 0

    def check(self, node: Broker, group: GroupId) -> None:
        """`node` has applied the group's whole log."""
        machine = node.machines[group]
        state = machine.consumer_groups.snapshot()
        if self._consumer_groups.setdefault(group, state) != state:
            raise Violation(f"lost-on-node: node {node.me}, consumer groups of group {group}")
        if group == REGISTRY_GROUP:
            registry = node.registry.snapshot()
            self._registry = self._registry or registry
            if registry != self._registry:
                raise Violation(f"lost-on-node: node {node.me}, the registry")
        for number, log in self._logs.logs.items():
            if log.uid in machine.partitions:
                self._check_partition(node, group, number)

    def _check_partition(self, node: Broker, group: GroupId, number: int) -> None:
        log = self._logs.logs[number]
        state = node.machines[group].partition(log.uid)
        if state.next_offset != log.end:
            raise Violation(f"lost-on-node: node {node.me}: {state.next_offset} of {log.end}")
        if state.log_start != log.start:
            raise Violation(f"lost-on-node: node {node.me}: from {state.log_start}: {log.start}")
        image = encode_partition(state)
        if self._partitions.setdefault(log.uid, image) != image:
            raise Violation(f"lost-on-node: node {node.me}, producers and writers of {log.uid}")
        position = log.start
        given: dict[Key, Got | StorageError] = {}
        while position < log.end:
            reader = Reader(node.tail, node.log, node.statistics, given)
            chunks, _ = reader.read(state, position, 1_000_000, at_least_one=True)
            given = {one.key: one.read() for one in reader.missing}
            if given and not chunks:
                continue
            position = self._logs.compared(node.me, position, log, b"".join(chunks))
            self.count += 1
