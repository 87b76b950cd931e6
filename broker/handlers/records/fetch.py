"""Fetch: whole batches from an offset on, at once or when there are enough of them (long polling).

Only the master reads, under its lease, and the lease is checked AFTER the work: read the values,
then check that this node acts in the same epoch, then answer (docs/protocol.md R14). If this node
holds the lease but may not act on it just now (it is handing the group over, or is too close to the
expiry), a fetch that may wait does so until there is a new master that the answer can name. The
same holds for a fetch whose client knows a newer epoch than we do: the old master sent it here, and
we are about to learn that we are the new one.

A client that acts on no hint and does not know yet that this node has handed the group over is
served here as well (ADR 50), as soon as the master has said how far it was when the fetch came, and
that much is applied here (`Groups.ask_index`): then the answer is as fresh as the master's.

What is not in memory is read by a thread (broker.reads.disk_reads), and the fetch waits for that,
too: then it checks everything again, with the data at hand, and answers. So a read may take long,
and all of the above still holds. If the disk does not answer in time, the answer has no records.

Every answer says session 0, so clients always send full requests (KIP-227 sessions are not kept). A
request that continues a session is refused, whatever its id; one that begins or ends a session
names everything it wants, and is served as if it had named no session, as in Kafka. There are no
transactions: applied records are stable, and read_committed reads the same.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from broker.delayed.delayed_fetches import DelayedFetch
from broker.handlers.topics.known_names import denial
from broker.reads.reader import NOTHING_GIVEN, Got, Key, Reader, UnreadableError
from broker.requests.context import Broker
from broker.requests.guard import report_bug
from broker.requests.leader_hints import endpoints, other_leader
from broker.requests.leaders import Leader
from broker.requests.request import Request
from broker.state_machine.partition import PartitionState
from paxos.ids import GroupId
from storage.errors import StorageError
from wire.apis import encode_response
from wire.codec.encoding import record_buffers
from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch
from wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReportProgress,
)

TOPIC_ID_FROM_VERSION: Final = 13
ANY_EPOCH: Final = -1
SESSION_BEGINS: Final = 0
SESSION_ENDS: Final = -1
READ_COMMITTED: Final = 1
READ_MS_MAX: Final = 2_000
"""How long a fetch waits for the disk, however short its own wait: after an empty answer its client
would ask for the same again."""
READS_MAX: Final = 3
"""Rounds of reading for one request: more than one only if the answer would otherwise be empty
because what was read has moved meanwhile."""
MASTER_WAITS: Final = 2
"""So often a fetch waits for READ_MS_MAX longer where its client would take a move for trouble."""
FULL_THROTTLE_MS: Final = 100
"""How long a client is asked to pause when no more fetches may be parked, or there is no room for
more answers."""

SAID_OF_DATA: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})
"""Errors that make a statement about this node's data, which is only true under its lease. A
consumer that is told by a node that is behind that its offset is out of range starts over."""

TOLD_OF_A_MOVE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

_NO_GROUP: Final = GroupId(-1)
_NO_FRAME: Final = memoryview(b"")


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, FetchRequest)
    broker.statistics.fetch_requests += 1
    refusal = _refusal(message)
    if refusal is not ErrorCode.NONE:
        _refuse(broker, request, message, refusal)
        return
    fetch = _Fetch(broker, request, message)
    wait_ms = min(message.max_wait_ms, broker.config.fetch_wait_ms_max)
    if message.progress is not None:
        broker.progress_requests.heard(fetch.groups, message.progress, max(0, wait_ms))
    if wait_ms <= 0 or not fetch.uids:
        fetch.answer_or_wait()
    elif not fetch.try_complete():
        fetch.wait(wait_ms)


def _refusal(message: FetchRequest) -> ErrorCode:
    """Why the request as a whole is not served."""
    replica = message.replica_state
    if message.replica_id >= 0 or (replica is not None and replica.replica_id >= 0):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # nobody replicates (CVE-2018-1288)
    if message.session_epoch not in (SESSION_BEGINS, SESSION_ENDS):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # it names changes, not partitions
    return ErrorCode.NONE


def _refuse(broker: Broker, request: Request, message: FetchRequest, refusal: ErrorCode) -> None:
    """Refuse all of it: at the top level, and in every partition for versions without that
    field."""
    broker.statistics.count_error(refusal)
    topics = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [_failed(one.partition, refusal) for one in topic.partitions],
        )
        for topic in message.topics
    ]
    response = FetchResponse(0, refusal, 0, topics)
    request.reply.complete(encode_response(request.header, response))


def _failed(
    partition: int, error: ErrorCode, leader: LeaderIdAndEpoch | None = None
) -> PartitionData:
    data = PartitionData(partition, error, -1, records=b"")
    data.current_leader = leader
    return data


@attrs.define(eq=False)
class _Wanted:
    """One partition of the request. `unknown` is the error if there is no such partition."""

    asked: FetchPartition
    unknown: ErrorCode
    topic: str = ""
    uid: int = -1
    group: GroupId = _NO_GROUP
    epoch_base: int = 0
    state: PartitionState | None = None
    """None if there is no such partition, or this node has no replica of its Paxos group."""

    def problem(self, me: int, leader: Leader, *, misses_move: bool = False) -> ErrorCode:
        """Why nothing can be read from it, the lease aside."""
        state = self.state
        if self.uid < 0 or (state is not None and state.dropped):
            return self.unknown
        asked, epoch = self.asked, leader.epoch + self.epoch_base
        if asked.current_leader_epoch > epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if state is None or (leader.node != me and not misses_move):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= asked.current_leader_epoch < epoch and not misses_move:
            return ErrorCode.FENCED_LEADER_EPOCH
        if not state.log_start <= asked.fetch_offset <= state.next_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE


class _Fetch:
    """One request until it is answered; parked, it is a
    `broker.delayed.delayed_fetches.WaitingFetch`."""

    __slots__ = (
        "_at_last",
        "_broker",
        "_fresh",
        "_given",
        "_message",
        "_moves",
        "_patience",
        "_place",
        "_reading",
        "_reads",
        "_request",
        "_topics",
        "groups",
        "uids",
    )

    def __init__(self, broker: Broker, request: Request, message: FetchRequest) -> None:
        self._broker = broker
        self._request = request
        self._message = message
        version = request.header.api_version
        by_id = version >= TOPIC_ID_FROM_VERSION
        self._moves = request.reply.connection.software.moves_after_fetch(version)
        """Whether its client acts on a new leader that the answer names."""
        self._topics = [(topic, _resolve(broker, topic, by_id)) for topic in message.topics]
        every = [one for _, wanted in self._topics for one in wanted]
        self.groups: Sequence[GroupId] = sorted({one.group for one in every if one.uid >= 0})
        self.uids: Sequence[int] = list(dict.fromkeys(one.uid for one in every if one.uid >= 0))
        self._at_last = False
        """It waits only for the disk."""
        self._patience = 0 if self._moves else MASTER_WAITS
        """How often it waits on rather than tell its client that the master is another node, or
        about to be."""
        self._fresh: dict[GroupId, bool | None] = {}
        """Groups of another master that are read here, and whether our copy is fresh enough; None:
        not known yet."""
        self._place: DelayedFetch | None = None
        self._reads = 0
        """Rounds of reading begun so far."""
        self._reading: _Reading | None = None
        self._given: Mapping[Key, Got | StorageError] = NOTHING_GIVEN

    # -- waiting ------------------------------------------------------------------------------

    def wait(self, wait_ms: int) -> None:
        """Park, or answer at once if too many are parked."""
        broker = self._broker
        if broker.delayed_fetches.full:
            broker.statistics.fetches_refused += 1
            self._stop_reading()
            self._reads, self._patience = READS_MAX, 0
            self.answer(at_last=True, throttle_ms=FULL_THROTTLE_MS)
            return
        broker.statistics.fetches_parked += 1
        self._request.frame = _NO_FRAME  # decoded; it would stay in memory while we wait
        if self._reading is not None:
            wait_ms = max(wait_ms, READ_MS_MAX)
            self._reading.extended = True
        self._place = broker.delayed_fetches.park(self, wait_ms)
        self._request.reply.when_waited(self._place.end)

    def try_complete(self) -> bool:
        """Answer if there is something to say; True if it is answered."""
        try:
            reading = self._reading
            if reading is not None:
                if reading.leaders == self._leaders():
                    return False
                self._stop_reading()  # mastership has changed meanwhile
            at_last = self._at_last
            return (at_last or self._is_enough()) and self.answer(at_last=at_last)
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(self._broker, self._request, error)
            return True

    def expired(self) -> None:
        try:
            self._at_last = True
            reading = self._reading
            if reading is not None and not reading.extended:
                self.wait(READ_MS_MAX)
                return
            if reading is not None:
                self._broker.statistics.reads_given_up += 1
                self._stop_reading()
                self._reads = READS_MAX
            self.answer_or_wait()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(self._broker, self._request, error)

    # -- reading ------------------------------------------------------------------------------

    def _begin_reading(self, reader: Reader, leaders: dict[GroupId, Leader]) -> None:
        self._reads += 1
        reading = self._reading = _Reading(leaders)
        got, missing = reader.got, list({one.key: one for one in reader.missing}.values())
        disk_reads = self._broker.disk_reads
        reading.give_up = disk_reads.read(
            missing, lambda given: self._have_read(reading, {**got, **given})
        )

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and reading.give_up is not None:
            reading.give_up()

    def _have_read(self, reading: "_Reading", given: Mapping[Key, Got | StorageError]) -> None:
        self._reading, self._given = None, given
        if reading.give_up is not None:  # else the caller continues: no thread was needed
            assert self._place is not None
            self._place.wake()

    def _is_enough(self) -> bool:
        """Whether an answer would hold `min_bytes`, an error, or a request for progress; reads
        nothing."""
        message, progress = self._message, self._message.progress
        left = min(message.min_bytes, message.max_bytes, self._broker.config.fetch_bytes_max)
        if left <= 0:
            return True
        if progress is not None and self._broker.progress_requests.is_wanted(
            self.groups, progress.consumer
        ):
            return True
        leaders = self._leaders()
        for _, wanted in self._topics:
            for one in wanted:
                problem = self._problem(one, leaders)
                if problem is ErrorCode.UNKNOWN_LEADER_EPOCH:
                    continue
                if problem is not ErrorCode.NONE and self._fresh.get(one.group, True) is None:
                    continue
                if problem is not ErrorCode.NONE:
                    return True
                assert one.state is not None
                asked = one.asked
                if asked.fetch_offset < one.state.next_offset:
                    there = one.state.bytes_from(asked.fetch_offset)
                    left -= min(there, max(asked.partition_max_bytes, 1))
                    if left <= 0:
                        return True
        return False

    # -- answering ----------------------------------------------------------------------------

    def answer_or_wait(self) -> None:
        """Answer now, or once the disk has delivered, or a master has spoken."""
        self._at_last = True
        if not self.answer(at_last=True):
            self._patience = max(0, self._patience - 1)
            self.wait(READ_MS_MAX)

    def answer(self, *, at_last: bool, throttle_ms: int = 0) -> bool:
        """Read, check the leases, answer. Unless `at_last`, do not answer while one of our leases
        is unsafe, and never while waiting for the disk.

        Returns whether it was answered.
        """
        broker = self._broker
        since_boot_ns = broker.groups.now().boot_ns if broker.traffic.samples_fetch() else 0
        leaders = self._leaders()
        given, self._given = self._given, NOTHING_GIVEN
        reader = Reader(broker.tail, broker.log, broker.statistics, given)
        responses, size = self._read(leaders, reader)
        lost = [group for group in self.groups if not self._still_leads(group, leaders[group])]
        if self._awaits_master and not (at_last and not self._patience):
            return False
        if lost:
            mine = any(broker.leaders.of(group) == leaders[group] for group in lost)
            if mine and not (at_last and not self._patience):
                return False
            size = self._take_back(responses, frozenset(lost))
        elif reader.missing and self._reads < (READS_MAX if size == 0 else 1):
            self._begin_reading(reader, leaders)
            reading = self._reading
            return reading is None and self.answer(at_last=at_last)
        broker.statistics.fetch_bytes += size
        if self._message.progress is not None:
            self._ask_for_progress(responses, self._message.progress.consumer)
        if broker.progress_requests.first_fetch and size:
            broker.progress_requests.fetched(self._with_records(responses))
        if not self._request.reply.room:
            throttle_ms = FULL_THROTTLE_MS  # it is empty, and so would the next one be
        hints = [data.current_leader for topic in responses for data in topic.partitions]
        self._count(responses, size)
        response = FetchResponse(
            throttle_ms,
            ErrorCode.NONE,
            0,
            responses,
            endpoints(broker, self._request.reply, hints) if any(hints) else [],
        )
        self._request.reply.complete(encode_response(self._request.header, response))
        if reader.disk_bytes >= broker.config.read_ahead_from_bytes:
            self._read_ahead(reader, responses)
        if since_boot_ns:
            broker.traffic.fetch.took(broker.groups.now().boot_ns - since_boot_ns)
        return True

    def _count(self, responses: list[FetchableTopicResponse], size: int) -> None:
        broker = self._broker
        for topic in responses:
            for data in topic.partitions:
                if data.error_code != ErrorCode.NONE:
                    broker.statistics.count_error(data.error_code)
        if size:
            for (_, wanted), topic in zip(self._topics, responses, strict=True):
                for one, data in zip(wanted, topic.partitions, strict=True):
                    if data.records:
                        broker.traffic.fetched(one.group, record_buffers(data.records)[0])

    def _ask_for_progress(self, responses: list[FetchableTopicResponse], consumer: int) -> None:
        """Once for each consumer, with the first answer that leaves (docs/kafka.md)."""
        ask: dict[GroupId, ReportProgress | None] = {}
        for (_, wanted), response in zip(self._topics, responses, strict=True):
            for one, data in zip(wanted, response.partitions, strict=True):
                if data.error_code == ErrorCode.NONE:
                    if one.group not in ask:
                        ask[one.group] = self._broker.progress_requests.request(one.group, consumer)
                    data.report_progress = ask[one.group]

    def _with_records(self, responses: list[FetchableTopicResponse]) -> set[GroupId]:
        return {
            one.group
            for (_, wanted), response in zip(self._topics, responses, strict=True)
            for one, data in zip(wanted, response.partitions, strict=True)
            if record_buffers(data.records)[0] > 0
        }

    def _leaders(self) -> dict[GroupId, Leader]:
        of = self._broker.leaders.of
        return {group: of(group) for group in self.groups}

    def _problem(self, one: _Wanted, leaders: dict[GroupId, Leader]) -> ErrorCode:
        me, leader = self._broker.me, leaders.get(one.group, _NO_LEADER)
        problem = one.problem(me, leader)
        if problem not in TOLD_OF_A_MOVE or not self._misses_move(one):
            return problem
        if leader.node != me and not self._is_fresh(one.group):
            return problem
        return one.problem(me, leader, misses_move=True)

    def _misses_move(self, one: _Wanted) -> bool:
        """Whether its client may not know that this node has handed it over (ADR 50)."""
        if self._moves or one.state is None:
            return False
        groups, connection = self._broker.groups, self._request.reply.connection
        moved_ns = groups.moved_ns(one.group)
        return moved_ns > 0 and connection.misses_move(one.topic, moved_ns, groups.now().boot_ns)

    def _is_fresh(self, group: GroupId) -> bool:
        """Whether our copy has what was acknowledged before the client asked; the master is asked
        once for each fetch."""
        if group not in self._fresh:
            self._fresh[group] = None
            self._broker.groups.ask_index(group, partial(self._told_fresh, group))
        return self._fresh[group] is True

    def _told_fresh(self, group: GroupId, fresh: bool) -> None:
        self._fresh[group] = fresh
        if self._place is not None:
            self._place.wake()

    @property
    def _awaits_master(self) -> bool:
        return None in self._fresh.values()

    def _still_leads(self, group: GroupId, leader: Leader) -> bool:
        """Whether what was read under this leader may be sent (R14); an error needs no lease."""
        broker = self._broker
        if leader.node != broker.me:
            return True
        return (
            broker.groups.acting(group)
            and broker.groups.caught_up(group)
            and broker.leaders.of(group) == leader
        )

    def _read_ahead(self, reader: Reader, responses: list[FetchableTopicResponse]) -> None:
        """Have the disk start on what this client will probably ask for first (ADR 32): a partition
        that had to wait, because clients move those they were just given to the end; or, if none
        had to wait, the one that was served first."""
        bytes_max = min(self._message.max_bytes, self._broker.config.fetch_bytes_max)
        first_max: int | None = None
        for (_, wanted), topic in zip(self._topics, responses, strict=True):
            for one, data in zip(wanted, topic.partitions, strict=True):
                if data.error_code != ErrorCode.NONE or one.state is None:
                    continue
                asked = one.asked
                if data.records:
                    first_max = asked.partition_max_bytes if first_max is None else first_max
                elif first_max is not None and asked.fetch_offset < one.state.next_offset:
                    most = min(bytes_max, asked.partition_max_bytes)
                    reader.read_soon(one.state, asked.fetch_offset, most)
                    return
        if first_max is not None:
            reader.read_on_soon(min(bytes_max, first_max))

    def _read(
        self, leaders: dict[GroupId, Leader], reader: Reader
    ) -> tuple[list[FetchableTopicResponse], int]:
        """All partitions in the order of the request, within its limits."""
        broker, message = self._broker, self._message
        room = self._request.reply.room
        left = min(message.max_bytes, broker.config.fetch_bytes_max, room)
        size = 0
        responses = []
        for topic, wanted in self._topics:
            answers: list[PartitionData] = []
            responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, answers))
            for one in wanted:
                error = self._problem(one, leaders)
                if error is not ErrorCode.NONE:
                    answers.append(self._failure(one, error, leaders))
                    continue
                if leaders[one.group].node != broker.me:
                    broker.statistics.fetched_unaware += 1
                first = size == 0 < room and not reader.missing  # what is missing will be there
                data, read = self._read_one(reader, one, left, first=first)
                answers.append(data)
                size += read
                left -= read
        return responses, size

    def _read_one(
        self, reader: Reader, one: _Wanted, left: int, *, first: bool
    ) -> tuple[PartitionData, int]:
        state, asked = one.state, one.asked
        assert state is not None
        chunks: Sequence[Buffer] = []
        size = 0
        if left > 0 or first:
            bytes_max = max(0, min(left, asked.partition_max_bytes))
            try:
                chunks, size = reader.read(state, asked.fetch_offset, bytes_max, at_least_one=first)
            except UnreadableError as error:
                self._broker.on_bug("fetch", error)
                return _failed(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR), 0
        end = state.next_offset
        data = PartitionData(asked.partition, ErrorCode.NONE, end, end, state.log_start)
        data.records = chunks
        if self._message.isolation_level == READ_COMMITTED:
            data.aborted_transactions = []
        return data, size

    def _failure(
        self, one: _Wanted, error: ErrorCode, leaders: dict[GroupId, Leader]
    ) -> PartitionData:
        hint = None
        if not self._moves:
            return _failed(one.asked.partition, error)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            hint = other_leader(self._broker, one.group, one.uid)
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            leader = leaders[one.group]
            assert leader.node is not None
            hint = LeaderIdAndEpoch(leader.node, leader.epoch + one.epoch_base)
        return _failed(one.asked.partition, error, hint)

    def _take_back(self, responses: list[FetchableTopicResponse], lost: frozenset[GroupId]) -> int:
        """Replace what was read under leases that did not last; return the size of the rest."""
        size = 0
        for (_, wanted), response in zip(self._topics, responses, strict=True):
            for at, one in enumerate(wanted):
                data = response.partitions[at]
                if data.error_code in SAID_OF_DATA and one.group in lost:
                    hint = other_leader(self._broker, one.group, one.uid) if self._moves else None
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                    response.partitions[at] = _failed(data.partition_index, error, hint)
                else:
                    size += record_buffers(data.records)[0]
        return size


@attrs.define(eq=False)
class _Reading:
    """The reading that a fetch waits for."""

    leaders: dict[GroupId, Leader]
    """As they were when it began."""
    extended: bool = False
    """The fetch is parked for as long as the disk may take, not for its own wait."""
    give_up: Callable[[], None] | None = None
    """None while it is being set up."""


_NO_LEADER: Final = Leader(None, ANY_EPOCH)


def _resolve(broker: Broker, topic: FetchTopic, by_id: bool) -> list[_Wanted]:
    """The partitions of one topic of the request, by name or by id."""
    if by_id:
        known, unknown = broker.registry.topic_by_id(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        known = broker.registry.topic(topic.topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = []
    for asked in topic.partitions:
        one = _Wanted(asked, unknown, "" if known is None else known.name)
        wanted.append(one)
        if known is None:
            one.unknown = denial(broker, unknown)
            continue
        if 0 <= asked.partition < len(known.partitions):
            one.uid, one.group = known.partitions[asked.partition]
            one.epoch_base = known.epoch_base(asked.partition)
            machine = broker.machines.get(one.group)
            one.state = None if machine is None else machine.partition(one.uid)
        else:
            one.unknown = denial(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return wanted
