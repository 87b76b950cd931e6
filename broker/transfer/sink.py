"""The node that catches up: it pulls what its log can no longer provide from a member that has it.

Theory of operation. A member that is asked for slots its log has trimmed says so; the group is then
`want`ed here. One group at a time, the registry's first:

    TIER      the group's data in this node's log goes to the cold store, so that all data we have
              ends at one offset per partition
    MANIFEST  which partitions there are, and from which offset to which
    DATA      each partition from the end of its own cold data on: the bulk, and it is kept whatever
              happens next. An interrupted transfer continues where it was, from any member
    STATE     the source's newest checkpoint of the group, chunk by chunk (small beside the data)
    REST      what was appended to the partitions between pulling their data and that checkpoint
    SAVE      the state becomes a checkpoint file, once all data is durable
    INSTALL   only then does the replica continue from it; what follows comes from the log

The source reserves nothing for us, and may change at any time. Data stays valid, because offsets
and the records at them are the same on every member; a mix of states from several sources would not
be, so the state then starts again. A compacted partition is copied from its beginning on, from one
source: each replica compacts for itself, and one may still have a value when another has already
removed the tombstone that deletes it (broker.lifecycle.compaction). One question is in flight at a
time, for a bounded piece: so at most that much is on the link, and UNWRITTEN_BYTES_MAX wait for our
disk.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol

import attrs

from broker.lifecycle.token_bucket import TokenBucket
from broker.reads.stored_batch import Batch as OneBatch
from broker.transfer.batches import BadData, batches_of
from broker.transfer.effects import (
    Append,
    Fetched,
    Install,
    NotFetched,
    Repair,
    Restart,
    Save,
    Send,
    SinkEffect,
    TierAll,
)
from broker.transfer.messages import (
    Answer,
    AskData,
    AskManifest,
    AskState,
    Data,
    Manifest,
    Part,
    Question,
    RefusalReason,
    Refused,
    State,
)
from paxos.ids import MS, REGISTRY_GROUP, SLOT_ZERO, GroupId, NodeId, Slot

PULL_BYTES: Final = 1024 * 1024
"""Requested at a time: a heartbeat may have to wait this long behind it on the link."""
UNWRITTEN_BYTES_MAX: Final = 4 * 1024 * 1024
STATE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""State of one Paxos group, held in memory until it is a checkpoint; a larger one is not taken
over."""
ANSWER_NS: Final = 3_000 * MS
"""After this time an unanswered question is sent again, to another member if there is one."""
GIVE_WAY_NS: Final = 2_000 * MS
"""After this time a group that no member can help with lets others go first."""
AVOID_SOURCE_NS: Final = 5_000 * MS
"""How long a member that could not help is not asked again."""
GONE_MAX: Final = 16
"""After so many answers that something is gone, another member is asked: each may be due to a
deletion, or to a checkpoint that is older than one."""
REPAIRS_MAX: Final = 1024
"""Most damaged places that wait; further ones will be found again."""


class Phase(Enum):
    TIER = "settle"
    MANIFEST = "manifest"
    DATA = "data"
    STATE = "state"
    REST = "rest"
    SAVE = "save"
    INSTALL = "install"


@attrs.frozen
class Candidate:
    """A reachable member; `masters`: how many groups it is the master of."""

    node: NodeId
    applied: Slot
    masters: int


class Local(Protocol):
    """The sink's queries to its own node."""

    def applied(self, group: GroupId) -> Slot: ...

    def knows_end(self, uid: int) -> bool:
        """Whether `cold_end` is known already; after a TIER it is for all partitions of that
        group."""

    def cold_end(self, uid: int) -> int | None:
        """Where the partition's cold data ends; None if there is none."""

    def compacted(self, uid: int) -> bool:
        """Whether the partition's topic is compacted, as far as this node knows."""

    def part_of(self, chunk: bytes) -> Part | None:
        """The partition whose state this is; None for a chunk of another kind.

        Raises:
            ValueError: if this is no chunk.
        """

    def candidates(self, group: GroupId) -> Iterable[Candidate]: ...


@attrs.define(eq=False)
class _Span:
    """Batches to be pulled; `fresh`: nothing of the partition is here, so the source decides where
    it begins."""

    uid: int
    at: int
    end: int
    fresh: bool
    whole_from: int | None = None
    """For a compacted partition: the range that has to come from one source begins here."""


@attrs.define(eq=False)
class _Job:
    group: GroupId
    phase: Phase
    applied: Slot = SLOT_ZERO
    """What we had applied when it began: a replica that advances by other means needs no
    transfer."""
    source: NodeId | None = None
    spans: deque[_Span] = attrs.Factory(deque)
    chunks: list[bytes] = attrs.Factory(list)
    partial: bytearray = attrs.Factory(bytearray)
    state_bytes: int = 0
    began_ns: int = 0
    whole: set[int] = attrs.Factory(set)
    """Compacted partitions that came from this source as a whole: they go on from there."""
    gone: int = 0
    """How often this source no longer had what it had told."""


@attrs.frozen
class _DataRequest:
    """Data of one partition only: to be appended to its cold data, or to repair damage."""

    group: GroupId
    uid: int
    start: int
    end: int
    repairs: bool


@attrs.define(eq=False)
class _DataJob(_Job):
    request: _DataRequest = attrs.field(kw_only=True)
    got: list[OneBatch] = attrs.Factory(list)
    complete: bool = False


@attrs.define(eq=False)
class SinkStatistics:
    transfers: int = 0
    """State transfers completed."""
    bytes_received: int = 0
    repaired: int = 0
    questions: int = 0
    timeouts: int = 0
    refusals: int = 0
    bad_answers: int = 0
    complaint: str = ""
    """What was wrong with the last bad answer."""


@attrs.frozen
class SinkView:
    """The transfer under way, for status and metrics."""

    group: GroupId
    phase: str
    source: NodeId | None


class Sink:
    """`first_number`: above the numbers of all questions of earlier lives."""

    def __init__(self, local: Local, bucket: TokenBucket, first_number: int) -> None:
        self._local, self._bucket = local, bucket
        self._number = first_number
        self._wanted: dict[GroupId, None] = {}
        self._data_requests: dict[_DataRequest, None] = {}
        self._job: _Job | None = None
        self._question: tuple[NodeId, Question] | None = None
        self._asked_ns = 0
        self._avoided_until: dict[NodeId, int] = {}
        self._unwritten = 0
        self._effects: list[SinkEffect] = []
        self.statistics = SinkStatistics()

    # -- what is wanted -----------------------------------------------------------------------

    def want(self, group: GroupId) -> None:
        """The members' logs do not reach back to this replica's position."""
        if self._job is None or isinstance(self._job, _DataJob) or self._job.group != group:
            self._wanted = (
                {group: None, **self._wanted}
                if group == REGISTRY_GROUP
                else {
                    **self._wanted,
                    group: None,
                }
            )

    def request_data(
        self, group: GroupId, uid: int, start: int, end: int, *, repairs: bool
    ) -> None:
        """A peer's copy of offsets `start` to `end`: to replace damaged cold data (`repairs`), or
        to continue the cold data where this node's log cannot be read."""
        if len(self._data_requests) < REPAIRS_MAX:
            self._data_requests[_DataRequest(group, uid, start, end, repairs)] = None
        elif not repairs:
            self._effects.append(NotFetched(group, uid))

    def forget(self, group: GroupId) -> None:
        """This node is no longer a member of the group."""
        self._wanted.pop(group, None)
        self._data_requests = {
            request: None for request in self._data_requests if request.group != group
        }
        if self._job is not None and self._job.group == group:
            self._end()

    def take(self) -> list[SinkEffect]:
        """The effects to carry out, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def idle(self) -> bool:
        return self._job is None and not self._wanted and not self._data_requests

    def catches_up(self, group: GroupId) -> bool:
        """Whether the group's state is being transferred here."""
        job = self._job
        busy = job is not None and job.group == group and not isinstance(job, _DataJob)
        return busy or group in self._wanted

    def view(self) -> SinkView | None:
        job = self._job
        if job is None:
            return None
        return SinkView(job.group, job.phase.value, job.source)

    @property
    def waiting(self) -> int:
        """Groups and damaged places that have not begun."""
        return len(self._wanted) + len(self._data_requests)

    # -- events -------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        job = self._job
        if job is not None and self._overtaken(job):
            self._end()
        if self._job is None:
            self._begin(now_ns)
        if self._question is not None and now_ns - self._asked_ns >= ANSWER_NS:
            self.statistics.timeouts += 1
            self._avoid(now_ns, self._question[0])
        self._go_on(now_ns)

    def peer_down(self, now_ns: int, node: NodeId) -> None:
        if self._question is not None and self._question[0] == node:
            self._avoid(now_ns, node)

    def tiered(self, now_ns: int, group: GroupId) -> None:
        self._pass(now_ns, group, Phase.TIER, Phase.MANIFEST)

    def appended(self, now_ns: int, size: int) -> None:
        """This many bytes of an Append are durable."""
        self._unwritten -= size
        self._go_on(now_ns)

    def not_appended(self, size: int) -> None:
        """There was no room: give up for now; it is requested again if needed."""
        self._unwritten -= size
        self._end()

    def not_saved(self, now_ns: int, group: GroupId) -> None:
        """The source's state was invalid, or there was no room for it."""
        job = self._job
        if job is not None and (job.group, job.phase) == (group, Phase.SAVE):
            if job.source is not None:
                self._avoided_until[job.source] = now_ns + AVOID_SOURCE_NS
            self._end()

    def saved(self, now_ns: int, group: GroupId) -> None:
        job = self._job
        if job is not None and (job.group, job.phase) == (group, Phase.SAVE):
            job.phase = Phase.INSTALL
            self._effects.append(Install(group, tuple(job.chunks)))

    def installed(self, now_ns: int, group: GroupId) -> None:
        job = self._job
        if job is not None and (job.group, job.phase) == (group, Phase.INSTALL):
            self.statistics.transfers += 1
            self._end()
            self._begin(now_ns)

    def on_answer(self, now_ns: int, sender: NodeId, answer: Answer) -> None:
        """A source's answer; unexpected ones are dropped."""
        asked, job = self._question, self._job
        if asked is None or job is None or (sender, answer.number) != (asked[0], asked[1].number):
            return
        self._question = None
        try:
            if isinstance(answer, Refused):
                self._refused(now_ns, job, sender, answer.why)
            elif isinstance(answer, Manifest):
                self._on_manifest(now_ns, job, sender, answer)
            elif isinstance(answer, Data):
                self._on_data(job, answer)
            else:
                self._on_state(job, answer)
        except ValueError as error:
            # Wrong contents in intact frames: damage at the source, or a bug. Others may be sound.
            self.statistics.bad_answers += 1
            self.statistics.complaint = f"node {sender}, group {job.group}: {error}"
            self._avoid(now_ns, sender)
        self._go_on(now_ns)

    # -- answers ------------------------------------------------------------------------------

    def _refused(self, now_ns: int, job: _Job, sender: NodeId, why: RefusalReason) -> None:
        self.statistics.refusals += 1
        if why is not RefusalReason.GONE:
            self._avoid(now_ns, sender)
        elif isinstance(job, _DataJob):
            self._end()  # it is below the log start by now; if still needed, that is noticed
        else:
            job.gone += 1
            if job.gone >= GONE_MAX:
                self._avoid(now_ns, sender)
            self._replan(job)

    def _on_manifest(self, now_ns: int, job: _Job, sender: NodeId, manifest: Manifest) -> None:
        if job.phase is not Phase.MANIFEST:
            raise ValueError("a manifest was not asked for")
        if manifest.saved <= job.applied:
            self._avoid(now_ns, sender)
            return
        job.spans = self._spans(job, manifest.parts, begins=True)
        job.phase = Phase.DATA

    def _spans(self, job: _Job, parts: Iterable[Part], *, begins: bool) -> deque[_Span]:
        """What is missing here of each partition; `begins`: nothing has come from this source
        yet."""
        spans: deque[_Span] = deque()
        for part in parts:
            end = self._local.cold_end(part.uid)
            compacted = self._local.compacted(part.uid)
            anew = compacted and begins and part.uid not in job.whole
            fresh = end is None or end < part.log_start or anew
            if end is not None and fresh:
                self._effects.append(Restart(part.uid, part.log_start))
            at = part.log_start if fresh or end is None else end
            if at < part.next_offset:
                spans.append(
                    _Span(part.uid, at, part.next_offset, fresh, at if compacted else None)
                )
        return spans

    def _on_data(self, job: _Job, data: Data) -> None:
        if not job.spans or job.phase not in (Phase.DATA, Phase.REST):
            raise ValueError("data was not asked for")
        span = job.spans[0]
        if data.uid != span.uid or data.end <= span.at:
            raise BadData(f"partition {data.uid} to {data.end}")
        batches = batches_of(data, span.at, fresh=span.fresh)
        size = sum(len(batch.data) for batch in batches)
        self._bucket.take(size)
        self.statistics.bytes_received += size
        start = min(span.at, batches[0].base) if batches else span.at
        span.at, span.fresh = data.end, span.fresh and not batches
        if span.at >= span.end:
            job.spans.popleft()
            if span.whole_from is not None:
                job.whole.add(span.uid)
        if isinstance(job, _DataJob) and job.request.repairs:
            job.got += batches
        elif batches:
            self._unwritten += size
            self._effects.append(Append(span.uid, start, tuple(batches), size))

    def _on_state(self, job: _Job, state: State) -> None:
        asked = (len(job.chunks), len(job.partial))
        if job.phase is not Phase.STATE or (state.chunk, state.at) != asked:
            raise ValueError("a piece of the state that was not asked for")
        size = sum(map(len, state.payload))
        if not size or job.state_bytes + size > STATE_BYTES_MAX:
            raise ValueError(f"a state of more than {job.state_bytes} bytes")
        for buffer in state.payload:
            job.partial += buffer
        job.state_bytes += size
        self._bucket.take(size)
        self.statistics.bytes_received += size
        if len(job.partial) < state.size:
            return
        job.chunks.append(bytes(job.partial))
        job.partial.clear()
        if state.last:
            parts = [self._local.part_of(chunk) for chunk in job.chunks]
            known = (part for part in parts if part is not None)
            job.spans = self._spans(job, known, begins=False)
            job.phase = Phase.REST

    # -- questions ----------------------------------------------------------------------------

    def _go_on(self, now_ns: int) -> None:
        """Ask for the next piece or, if there is none, continue with the next phase."""
        job = self._job
        if job is None or self._question is not None:
            return
        if job.phase in (Phase.DATA, Phase.REST) and not job.spans:
            if self._unwritten:
                return
            self._data_complete(now_ns, job)
            job = self._job
        if job is None or job.phase in (Phase.TIER, Phase.SAVE, Phase.INSTALL):
            return
        if self._unwritten >= UNWRITTEN_BYTES_MAX or not self._bucket.open(now_ns):
            return
        source = self._source_for(now_ns, job)
        if source is not None:
            self._ask(now_ns, source, self._next_question(job))
        elif now_ns - job.began_ns >= GIVE_WAY_NS and (self._wanted or self._data_requests):
            self._give_way(job)

    def _next_question(self, job: _Job) -> Question:
        self._number += 1
        if job.phase is Phase.MANIFEST:
            return AskManifest(self._number, job.group, job.applied)
        if job.phase is Phase.STATE:
            return AskState(self._number, job.group, len(job.chunks), len(job.partial))
        span = job.spans[0]
        return AskData(self._number, job.group, span.uid, span.at, PULL_BYTES)

    def _ask(self, now_ns: int, source: NodeId, question: Question) -> None:
        self._question = (source, question)
        self._asked_ns = now_ns
        self.statistics.questions += 1
        self._effects.append(Send(source, question))

    def _data_complete(self, now_ns: int, job: _Job) -> None:
        if isinstance(job, _DataJob):
            request, job.complete = job.request, True
            if request.repairs:
                self._effects.append(
                    Repair(request.uid, request.start, request.end, tuple(job.got))
                )
                self.statistics.repaired += 1
            else:
                self._effects.append(Fetched(request.group, request.uid, request.end))
            self._end()
            self._begin(now_ns)
        elif job.phase is Phase.DATA:
            job.phase = Phase.STATE
        else:
            job.phase = Phase.SAVE
            self._effects.append(Save(job.group, tuple(job.chunks)))

    def _source_for(self, now_ns: int, job: _Job) -> NodeId | None:
        """The node to ask: the same as before, or one that is ahead and master of the fewest
        groups."""
        if job.source is not None:
            return job.source
        self._avoided_until = {
            node: until for node, until in self._avoided_until.items() if until > now_ns
        }
        able = [
            (one.masters, one.node)
            for one in self._local.candidates(job.group)
            if one.node not in self._avoided_until
            and (isinstance(job, _DataJob) or one.applied > job.applied)
        ]
        if not able:
            return None
        job.source = min(able)[1]
        return job.source

    def _avoid(self, now_ns: int, node: NodeId) -> None:
        """Another member should help. Data is usually kept; the state starts again."""
        self._question = None
        self._avoided_until[node] = now_ns + AVOID_SOURCE_NS
        if self._job is not None:
            self._job.source, self._job.gone = None, 0
            self._job.whole.clear()
            if self._job.phase is Phase.STATE:
                self._replan(self._job)
            elif self._job.phase is Phase.DATA and self._job.spans:
                self._begin_again(self._job.spans[0])

    def _begin_again(self, span: _Span) -> None:
        """Another source is about to continue what one has begun."""
        if span.whole_from is not None and span.at > span.whole_from:
            self._effects.append(Restart(span.uid, span.whole_from))
            span.at, span.fresh = span.whole_from, True

    def _replan(self, job: _Job) -> None:
        """Look again at what there is; what has been appended is durable or will be."""
        job.chunks.clear()
        job.partial.clear()
        job.state_bytes = 0
        job.spans.clear()
        # Data on its way to the cold store counts: TIER waits for it.
        job.phase = Phase.TIER
        self._effects.append(TierAll(job.group))

    # -- jobs ---------------------------------------------------------------------------------

    def _begin(self, now_ns: int) -> None:
        assert self._job is None
        if self._unwritten:
            return  # of a cancelled job: the ends of the cold data are not known yet
        if self._data_requests:
            request = next(iter(self._data_requests))
            if not self._local.knows_end(request.uid):
                return
            del self._data_requests[request]
            job = _DataJob(request.group, Phase.DATA, began_ns=now_ns, request=request)
            at = request.start
            if not request.repairs:  # a transfer may have got some of it meanwhile
                at = max(at, self._local.cold_end(request.uid) or 0)
            if at < request.end:
                fresh = request.repairs or self._local.cold_end(request.uid) is None
                job.spans.append(_Span(request.uid, at, request.end, fresh))
            self._job = job
        elif self._wanted:
            group = next(iter(self._wanted))
            del self._wanted[group]
            applied = self._local.applied(group)
            self._job = _Job(group, Phase.TIER, applied, began_ns=now_ns)
            self._effects.append(TierAll(group))

    def _give_way(self, job: _Job) -> None:
        """No member can help with this one; perhaps one can with the next."""
        self._end()
        if isinstance(job, _DataJob):
            self._data_requests[job.request] = None
        else:
            self._wanted[job.group] = None

    def _end(self) -> None:
        job = self._job
        if isinstance(job, _DataJob) and not job.complete and not job.request.repairs:
            self._effects.append(NotFetched(job.group, job.request.uid))
        self._job = self._question = None

    def _overtaken(self, job: _Job) -> bool:
        """Whether the replica has advanced by other means, so that this state is not needed."""
        if isinstance(job, _DataJob) or job.phase in (Phase.SAVE, Phase.INSTALL):
            return False
        return self._local.applied(job.group) > job.applied

    def _pass(self, now_ns: int, group: GroupId, before: Phase, after: Phase) -> None:
        job = self._job
        if job is not None and (job.group, job.phase) == (group, before):
            job.phase = after
            self._go_on(now_ns)
