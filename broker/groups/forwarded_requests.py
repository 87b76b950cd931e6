"""Requests to a coordinator that has moved: its former node asks the new one, for its client.

A client learns from errors that its coordinator has moved, and some pay for it: kafka-go and sarama
leave their generation at any error of a heartbeat, join again, and read everything since the last
commit once more. So a node that has been the coordinator goes on taking the requests of members,
for as long as it lives, and passes them to the node that is master now. Clients that look for their
coordinator find the new one, and are never sent here again.

A request is passed on only after our own coordinator has refused it, or would: NOT_COORDINATOR says
for certain that a commit will not be made [F2], and whatever else it refuses may be repeated. The
message names the mastership, by its epoch, that it is meant for, and only that one takes it [F1].
The node that was asked never passes a request on: it refuses, and we look again. Epochs only grow,
and a request goes to each at most once, so it cannot go in circles.

Within a Paxos group no request overtakes one that came before it [F4]: while some are under way to
one mastership, others may follow them there, but wait before they take another way. Only requests
that wait for other members (JoinGroup, SyncGroup) let others pass.

A request that is over a second old is not passed on any more, nor taken by the node that is
asked: its client may have given up and committed something newer by another way. If the link is
lost, or no answer comes, the outcome of a commit is unknown.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Final, Protocol

import attrs

from broker.ports import Groups
from coordinator import carried
from coordinator.carried import MemberRequest
from coordinator.model import (
    ErrorCode,
    JoinGroup,
    OffsetCommitResponse,
    Request,
    Response,
    SyncGroup,
    fate_unknown,
    refusal,
)
from coordinator.replicated.codec import CommandError
from paxos.entry import Buffer
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now

FIND_NS: Final = 1_000 * MS
"""How long a request waits until the next master is known, or the asked node knows that it is."""
FRESH_NS: Final = 1_000 * MS
"""An older request is refused instead: clients wait longer than this before they give up."""
ANSWER_NS: Final = 10_000 * MS
LONG_ANSWER_NS: Final = 600_000 * MS
"""A member waits for the others, for as long as they may take: five minutes by default. Who is
refused then looks for its coordinator and joins again, as the same member."""
LONG: Final = frozenset((JoinGroup, SyncGroup))
TRIES_MAX: Final = 8
FORWARDED_MAX: Final = 10_000
"""Requests of our clients under way or waiting: further ones are refused."""
GUESTS_MAX: Final = 10_000
GUEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Requests of other nodes' clients that have no answer yet, and their bytes: further ones are
refused."""
LOOK_EVERY_NS: Final = 50 * MS


class Verdict(IntEnum):
    """What the asked node says of a request."""

    ANSWERED = 0
    NOT_HERE = 1
    """It is not, or no longer, the coordinator, and the request has had no effect."""
    REFUSED = 2
    """It has too much to do, or does not understand the request; that had no effect."""


class RequestLinks(Protocol):
    """The links to other nodes, as far as they carry requests."""

    def takes(self, to: NodeId) -> bool:
        """Whether that node can be asked now: there is a link, and it knows such messages."""

    def ask(
        self, to: NodeId, number: int, group: GroupId, epoch: int, until_wall_ns: int, body: bytes
    ) -> bool:
        """Send a request; False if it cannot be sent."""

    def answer(self, to: NodeId, number: int, verdict: Verdict, body: bytes) -> None:
        """Send an answer; dropped if it cannot be sent."""


class Here(Protocol):
    """The coordinators of this node (broker.groups.consumer_groups)."""

    def ask_here(
        self, group: GroupId, request: Request, answered: Callable[[Response], None], number: int
    ) -> None: ...

    def has_coordinated(self, group: GroupId) -> bool:
        """Whether this node was the group's coordinator at some time of its present life."""

    def keeps(self, group: GroupId, consumer_group: str) -> bool:
        """Whether this consumer group belongs to that Paxos group."""


@attrs.define(eq=False)
class ForwardingStatistics:
    forwarded: int = 0
    """Requests of our clients that were passed on, each time."""
    returned: int = 0
    """Refused by the node that was asked: it was not the coordinator."""
    unanswered: int = 0
    """The link was lost, or no answer came in time."""
    received: int = 0
    """Requests of other nodes' clients."""
    refused: int = 0
    """Of those, refused because they were too many, too late, or not understood."""


@attrs.define(eq=False)
class _Taken:
    """A request of one of our clients, until it is answered."""

    number: int
    group: GroupId
    request: Request
    answered: Callable[[Response], None]
    hung_up: Callable[[], bool]
    came_boot_ns: int
    waits_since_boot_ns: int = 0
    epoch: int = -1
    """The last mastership that it was passed to."""
    to: NodeId | None = None
    tries: int = 0
    until_boot_ns: int = 0
    """Under way to another node: how long we wait for the answer."""

    @property
    def long(self) -> bool:
        return type(self.request) in LONG


def _number_of(taken: _Taken) -> int:
    return taken.number


@attrs.define(eq=False)
class _Lane:
    """The requests of one Paxos group that are not simply with our coordinator."""

    waiting: list[_Taken] = attrs.Factory(list)
    """In the order in which they came."""
    unsettled: set[int] = attrs.Factory(set)
    """Requests, except long ones, that were passed on or left in a closed tenure: nothing may
    overtake them ..."""
    epoch: int = -1
    """... but requests to the same mastership may follow."""
    moving: bool = False
    """`_move` is at work."""


@attrs.define(eq=False)
class _Guest:
    """A request of another node's client."""

    sender: NodeId
    number: int
    group: GroupId
    epoch: int
    request: Request
    size: int
    until_boot_ns: int
    """How long it waits for this node to become the master that it is meant for."""
    until_wall_ns: int


class RequestForwarding:
    """Both halves: passing on the requests of our clients, and answering those of other nodes."""

    def __init__(
        self, me: NodeId, incarnation: Incarnation, groups: Groups, here: Here, links: RequestLinks
    ) -> None:
        self._me, self._groups, self._here, self._links = me, groups, here, links
        self._number = 0
        # Answers for an earlier incarnation may still arrive: no number is used twice.
        self._sent = (incarnation & 0xFFFF_FFFF) << 32
        self._lanes: dict[GroupId, _Lane] = {}
        self._under_way: dict[int, _Taken] = {}
        """By the number of the message."""
        self._waiting = 0
        self._guests = self._guest_bytes = 0
        self._early: dict[GroupId, deque[_Guest]] = {}
        """Requests for a mastership of this node that it has not heard of yet."""
        self._look_boot_ns = 0
        self.statistics = ForwardingStatistics()

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def guests(self) -> int:
        return self._guests

    # -- requests of our clients --------------------------------------------------------------

    def take(
        self,
        group: GroupId,
        request: Request,
        answered: Callable[[Response], None],
        hung_up: Callable[[], bool],
    ) -> None:
        """A request of `carried.CARRIED`; `answered` is called exactly once."""
        self._number += 1
        now = self._groups.now()
        taken = _Taken(self._number, group, request, answered, hung_up, now.boot_ns)
        lane = self._lanes.get(group)
        if lane is None:
            self._ask_here(taken)
        elif self._has_room():
            self._wait(lane, taken, now)
            self._move(group, lane)
        else:
            answered(refusal(request, ErrorCode.NOT_COORDINATOR))

    def left(self, group: GroupId, number: int, epoch: int) -> None:
        """The tenure of this epoch has ended, and the outcome of this request is still open."""
        if number:
            lane = self._lanes.setdefault(group, _Lane())
            lane.unsettled.add(number)
            lane.epoch = epoch

    def _ask_here(self, taken: _Taken) -> None:
        answered = partial(self._answered_here, taken)
        self._here.ask_here(taken.group, taken.request, answered, taken.number)

    def _answered_here(self, taken: _Taken, response: Response) -> None:
        lane = self._lanes.get(taken.group)
        if lane is not None:
            lane.unsettled.discard(taken.number)
        if sends_away(response) and self._here.has_coordinated(taken.group):
            self._look_again(taken, response)
        else:
            taken.answered(response)
        if lane is not None:
            self._move(taken.group, lane)

    def _look_again(self, taken: _Taken, response: Response) -> None:
        """A request that was not carried out goes back to its place in the queue, unless it is too
        late for another try."""
        now = self._groups.now()
        if taken.tries < TRIES_MAX and self._is_fresh(taken, now) and self._has_room():
            lane = self._lanes.setdefault(taken.group, _Lane())
            self._wait(lane, taken, now)
            self._move(taken.group, lane)
        else:
            taken.answered(response)

    def _is_fresh(self, taken: _Taken, now: Now) -> bool:
        return taken.long or now.boot_ns - taken.came_boot_ns < FRESH_NS

    def _has_room(self) -> bool:
        return self._waiting + len(self._under_way) < FORWARDED_MAX

    def _wait(self, lane: _Lane, taken: _Taken, now: Now) -> None:
        taken.waits_since_boot_ns = now.boot_ns
        self._waiting += 1
        insort(lane.waiting, taken, key=_number_of)

    def _move(self, group: GroupId, lane: _Lane) -> None:
        """Let those that wait go on, in order, as far as possible."""
        if lane.moving:
            return
        lane.moving = True
        try:
            while lane.waiting and self._go_on(lane, lane.waiting[0]):
                pass
        finally:
            lane.moving = False
        if not lane.waiting and not lane.unsettled and self._lanes.get(group) is lane:
            del self._lanes[group]

    def _go_on(self, lane: _Lane, taken: _Taken) -> bool:
        """Whether it has left the queue: asked here, asked elsewhere, or refused."""
        now, groups, group = self._groups.now(), self._groups, taken.group
        waited = now.boot_ns > taken.came_boot_ns
        if not self._is_fresh(taken, now) or (waited and taken.hung_up()):
            self._leave_queue(lane)
            taken.answered(refusal(taken.request, ErrorCode.NOT_COORDINATOR))
            return True
        if groups.acting(group):
            if lane.unsettled:
                return False
            self._leave_queue(lane)
            taken.tries += 1
            self._ask_here(taken)
            return True
        master, epoch = groups.master(group), groups.epoch(group)
        found = master is not None and master != self._me and epoch > taken.epoch
        if found and lane.unsettled and lane.epoch != epoch:
            return False
        if found or now.boot_ns - taken.waits_since_boot_ns > FIND_NS:
            self._leave_queue(lane)
            if not found or not self._pass_on(lane, taken, master, epoch, now):
                taken.answered(refusal(taken.request, ErrorCode.NOT_COORDINATOR))
            return True
        return False

    def _leave_queue(self, lane: _Lane) -> None:
        del lane.waiting[0]
        self._waiting -= 1

    def _pass_on(self, lane: _Lane, taken: _Taken, to: NodeId | None, epoch: int, now: Now) -> bool:
        """Ask the node that is master since `epoch`; False if it cannot be asked."""
        if to is None or not self._links.takes(to):
            return False
        try:
            body = carried.encode_request(taken.request)
        except CommandError:
            return False
        self._sent += 1
        patience_ns = LONG_ANSWER_NS if taken.long else ANSWER_NS
        came_ns = now.boot_ns if taken.long else taken.came_boot_ns
        until_wall_ns = now.wall_ns + came_ns + FRESH_NS - now.boot_ns
        if not self._links.ask(to, self._sent, taken.group, epoch, until_wall_ns, body):
            return False
        taken.to, taken.epoch, taken.until_boot_ns = to, epoch, now.boot_ns + patience_ns
        taken.tries += 1
        self._under_way[self._sent] = taken
        if not taken.long:
            lane.unsettled.add(taken.number)
            lane.epoch = epoch
        self.statistics.forwarded += 1
        return True

    def on_answer(self, sender: NodeId, number: int, verdict: int, body: Buffer) -> None:
        """What another node says of a request that we passed on."""
        taken = self._under_way.get(number)
        if taken is None or taken.to != sender:
            return
        lane = self._landed(number, taken)
        if verdict == Verdict.ANSWERED:
            taken.answered(self._response(taken.request, body))
        elif verdict == Verdict.NOT_HERE:
            self.statistics.returned += 1
            self._look_again(taken, refusal(taken.request, ErrorCode.NOT_COORDINATOR))
        else:
            taken.answered(refusal(taken.request, ErrorCode.NOT_COORDINATOR))
        self._move(taken.group, lane)

    def _response(self, request: Request, body: Buffer) -> Response:
        try:
            return carried.decode_response(request, body)
        except CommandError:
            self.statistics.unanswered += 1
            return fate_unknown(request)

    def _landed(self, number: int, taken: _Taken) -> _Lane:
        del self._under_way[number]
        lane = self._lanes.setdefault(taken.group, _Lane())
        lane.unsettled.discard(taken.number)
        return lane

    def lost(self, node: NodeId) -> None:
        """The link to a node is lost: nobody will tell what became of the requests sent there."""
        self._give_up([number for number, one in self._under_way.items() if one.to == node])

    def _give_up(self, numbers: list[int]) -> None:
        for number in numbers:
            taken = self._under_way.get(number)
            if taken is None:
                continue  # answered by what the one before it has set off
            lane = self._landed(number, taken)
            self.statistics.unanswered += 1
            taken.answered(fate_unknown(taken.request))
            self._move(taken.group, lane)

    # -- requests of other nodes' clients -----------------------------------------------------

    def on_request(
        self,
        sender: NodeId,
        number: int,
        group: GroupId,
        epoch: int,
        until_wall_ns: int,
        body: Buffer,
    ) -> None:
        now, size = self._groups.now(), len(body)
        self.statistics.received += 1
        request: MemberRequest | None = None
        if self._guests < GUESTS_MAX and self._guest_bytes + size <= GUEST_BYTES_MAX:
            try:
                request = carried.decode_request(body, now.wall_ns // MS)
            except CommandError:
                request = None  # another version's, or damaged: the client looks for us itself
        if request is None or not self._here.keeps(group, request.group):
            self.statistics.refused += 1
            self._links.answer(sender, number, Verdict.REFUSED, b"")
            return
        until_boot_ns = now.boot_ns + FIND_NS
        guest = _Guest(sender, number, group, epoch, request, size, until_boot_ns, until_wall_ns)
        self._guests += 1
        self._guest_bytes += size
        early = self._early.get(group)
        if early is not None or not self._admit(guest, now):
            self._early.setdefault(group, deque()).append(guest)

    def _admit(self, guest: _Guest, now: Now) -> bool:
        """Whether the request was passed to our coordinator, or refused; otherwise it waits."""
        epoch = self._groups.epoch(guest.group)
        late = now.wall_ns > guest.until_wall_ns
        if epoch < guest.epoch and now.boot_ns < guest.until_boot_ns and not late:
            return False
        if epoch != guest.epoch or late:
            self.statistics.refused += late
            self._dismiss(guest, Verdict.NOT_HERE, b"")
        else:
            answered = partial(self._answered_guest, guest)
            self._here.ask_here(guest.group, guest.request, answered, 0)
        return True

    def _answered_guest(self, guest: _Guest, response: Response) -> None:
        if sends_away(response):
            self._dismiss(guest, Verdict.NOT_HERE, b"")
            return
        try:
            body = carried.encode_response(guest.request, response)
        except CommandError:  # its client asks us itself, and may get an answer of any size
            self._dismiss(guest, Verdict.REFUSED, b"")
            return
        self._dismiss(guest, Verdict.ANSWERED, body)

    def _dismiss(self, guest: _Guest, verdict: Verdict, body: bytes) -> None:
        self._guests -= 1
        self._guest_bytes -= guest.size
        self._links.answer(guest.sender, guest.number, verdict, body)

    # -- time ---------------------------------------------------------------------------------

    def look(self, now: Now) -> None:
        """A master may have changed, or time has passed."""
        for group, early in list(self._early.items()):
            while early and self._admit(early[0], now):
                early.popleft()
            if not early:
                del self._early[group]
        for group, lane in list(self._lanes.items()):
            self._move(group, lane)

    def tick(self, now: Now) -> None:
        if self._early or self._waiting:
            self.look(now)
        if self._under_way and now.boot_ns >= self._look_boot_ns:
            self._look_boot_ns = now.boot_ns + LOOK_EVERY_NS
            items = self._under_way.items()
            self._give_up([one for one, taken in items if now.boot_ns >= taken.until_boot_ns])


def sends_away(response: Response) -> bool:
    """Whether it says, for all of the request, that the coordinator is another node."""
    if isinstance(response, OffsetCommitResponse):
        errors = {one.error for topic in response.topics for one in topic.partitions}
        return errors == {ErrorCode.NOT_COORDINATOR}
    return response.error == ErrorCode.NOT_COORDINATOR
