"""DeleteRecords (KIP-107): moves a partition's first offset up, the same on every replica.

The change goes through the group's log like a batch, so it applies to all or none, and a new master
knows it. Nothing below the new start is served again.

The offset is decided here: "everything" means everything at this moment. A command may reach the
log late, through another master, after records were acknowledged that its client never meant
(F1). With a fixed offset it then does no harm: an offset is never used twice, and a log
start never goes back.
"""

from functools import partial
from typing import Final

from balancer.registry.records import PartitionPlace
from broker.handlers.topics.known_names import denial
from broker.proposals.commands import DELETE_RECORDS_RESULT, EVERYTHING, delete_records
from broker.proposals.intake import Done, FailureReason, Outcome
from broker.requests.context import Broker
from broker.requests.guard import report_bug
from broker.requests.request import Request
from broker.topic_configs import is_deleted
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.logs import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_ERROR_OF: Final = {
    FailureReason.NOT_MASTER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    FailureReason.UNKNOWN: ErrorCode.REQUEST_TIMED_OUT,
    FailureReason.OVERLOADED: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DeleteRecordsRequest)
    wanted: dict[str, dict[int, int]] = {}
    for topic in message.topics:  # of a partition that is named twice the last offset is meant
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((one.partition_index, one.offset) for one in topic.partitions)
    deletion = _Deletion(broker, request)
    for name, offsets in wanted.items():
        known = broker.registry.topic(name)
        places = () if known is None else known.partitions
        results: list[DeleteRecordsPartitionResult] = []
        deletion.results.append(DeleteRecordsTopicResult(name, results))
        for partition, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition, -1)
            results.append(result)
            if not 0 <= partition < len(places):
                result.error_code = denial(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif known is not None and not is_deleted(known.configs):
                result.error_code = ErrorCode.POLICY_VIOLATION
            elif offset < EVERYTHING:
                result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                place = places[partition]
                before = _before(broker, place, offset)
                if before is None:
                    result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    deletion.submit(place, before, result)
    deletion.submitted(message.timeout_ms)


def _before(broker: Broker, place: PartitionPlace, asked: int) -> int | None:
    """The offset that is meant; None where only the partition's master can tell."""
    if asked != EVERYTHING:
        return asked
    machine, groups = broker.machines.get(place.group), broker.groups
    if machine is None or not groups.caught_up(place.group):
        return None
    state = machine.partitions.get(place.uid)
    end = 0 if state is None else state.next_offset
    return end if groups.acting(place.group) else None


class _Deletion:
    """One request under way. `waiting` counts its partitions and, at first, the handler itself."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self.broker = broker
        self.request = request
        self.results: list[DeleteRecordsTopicResult] = []
        self.waiting = 1
        self.answered = False

    def submit(
        self, place: PartitionPlace, before: int, result: DeleteRecordsPartitionResult
    ) -> None:
        self.waiting += 1
        result.error_code = ErrorCode.REQUEST_TIMED_OUT  # unless a better answer comes
        done = partial(self.done, result)
        self.broker.groups.submit(place.group, delete_records(place.uid, before), done)

    def submitted(self, timeout_ms: int) -> None:
        self.waiting -= 1
        if self.waiting:
            self.broker.delayed_produces.add(self, timeout_ms)
        else:
            self._answer()

    def done(self, result: DeleteRecordsPartitionResult, outcome: Outcome) -> None:
        """The outcome of one partition. Our bugs must not reach the caller."""
        if self.answered:
            return
        try:
            if isinstance(outcome, Done):
                result.error_code, result.low_watermark = DELETE_RECORDS_RESULT.unpack(
                    outcome.result
                )
            else:
                result.error_code = _ERROR_OF[outcome.why]
            self.waiting -= 1
            if not self.waiting:
                self.broker.delayed_produces.remove(self)
                self._answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self.answered = True
            self.broker.delayed_produces.remove(self)
            report_bug(self.broker, self.request, error)

    def timed_out(self) -> None:
        """The client waits no longer; what was proposed may still be chosen."""
        try:
            self._answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self.answered = True
            report_bug(self.broker, self.request, error)

    def _answer(self) -> None:
        self.answered = True
        response = DeleteRecordsResponse(topics=self.results)
        self.request.reply.complete(encode_response(self.request.header, response))
