"""The gate in front of all handlers: only what the client may do gets to them.

It goes by the table (`broker.security.table`), so no handler can forget to ask. A request that is
denied as a whole is refused in the format of its API. Of a request that names many things, those
that are denied are taken out before its handler sees it, and added to its answer with an error
each. What needs more than a name is in `broker.handlers.security.by_hand`; what becomes known only
when the answer is made (Metadata, topics in descriptions of groups) is asked for there.

A large request is served in portions (`broker.requests.portions`), and each portion passes here.
One of an API that is not cut is decided piece by piece, a round each, so that nobody waits for it.
Whoever is let through is not asked again: what waits, as a long poll does, ends as it began, and
what is forwarded to another node was allowed by the one that the client is connected to.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, Final

import attrs

from broker.handlers.security.edited_reply import Edit, EditedReply
from broker.ports import Reply
from broker.requests.access import DENIED, TEXTS, Access
from broker.requests.context import Broker
from broker.requests.named_items import NAMED, Named
from broker.requests.portions import SPLIT_RULES
from broker.requests.refusals import BYTES_OF_A_THING, answer_aside, refuse
from broker.requests.request import Request
from broker.security.table import PLAIN, ROWS, Need
from wire.acls import CLUSTER_NAME
from wire.apis import APIS, ApiKey, decode_request
from wire.error_codes import ErrorCode

Handler = Callable[[Broker, Request], None]
PIECE: Final = 200
"""Items decided in one round: a millisecond, where all of them are denied and written down."""


@attrs.frozen
class Outcome:
    """What becomes of a request. `error`: all of it is refused. Else `message` is served, or
    nothing if that is None, and the edits change the answer, to which they add `refused` rows."""

    message: Any
    error: ErrorCode = ErrorCode.NONE
    edits: tuple[Edit, ...] = ()
    refused: int = 0


Deciding = Generator[None, None, Outcome]
"""Yields where others may have a turn."""
Check = Callable[[Broker, Request, Access], Deciding]


def at_once(check: Callable[[Broker, Request, Access], Outcome]) -> Check:
    """A check of one piece."""

    @wraps(check)
    def deciding(broker: Broker, request: Request, access: Access) -> Deciding:
        outcome = check(broker, request, access)
        yield from ()
        return outcome

    return deciding


def gated(handlers: Mapping[int, Handler], by_hand: Mapping[int, Check]) -> dict[int, Handler]:
    """The same handlers behind the gate. An API without a row in the table is a KeyError."""
    checks: dict[int, Check] = {}
    for key in handlers:
        row = ROWS[key]
        checks[key] = by_hand[key] if row.by_hand else partial(check_needs, row.needs)
    return {key: partial(_serve, handler, checks[key]) for key, handler in handlers.items()}


def _serve(handler: Handler, check: Check, broker: Broker, request: Request) -> None:
    assert broker.authorizer is not None
    request = _kept(request)
    deciding = check(broker, request, Access(broker.authorizer, request))
    cut = request.header.api_key in SPLIT_RULES  # then it is a portion: the next must not overtake
    try:
        next(deciding)
        while cut:
            next(deciding)
    except StopIteration as end:
        _act(handler, broker, request, end.value)
        return
    found: list[Outcome] = []

    def rest() -> Iterator[None]:
        yield
        found.append((yield from deciding))

    def done() -> None:
        _act(handler, broker, request, found[0])

    broker.portions.in_steps(broker, request.reply, rest(), done)


def _kept(request: Request) -> Request:
    """One that may take several rounds must not refer to a frame that ends with this one."""
    message: Any = request.message
    key = request.header.api_key
    named = (getattr(message, row.asked, None) for row in NAMED.get(key, ()))
    long = any(len(items) > PIECE for items in named if items)
    if request.owned or not (long or getattr(message, "subscribed_topic_regex", None)):
        return request
    frame = memoryview(bytes(request.frame))
    message = decode_request(request.header, frame)
    return attrs.evolve(request, frame=frame, owned=True, message=message)


def _act(handler: Handler, broker: Broker, request: Request, outcome: Outcome) -> None:
    if outcome.error is not ErrorCode.NONE:
        _refuse_all(broker, request, outcome.error)
    elif not outcome.edits:
        handler(broker, request)
    elif outcome.message is not None:
        reply: Reply = EditedReply(broker, request, outcome.edits, outcome.refused)
        handler(broker, attrs.evolve(request, message=outcome.message, reply=reply))
    elif _has_no_answer(request):
        request.reply.close(TEXTS[ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    else:
        answer: Any = APIS[request.header.api_key].response()

        def make() -> Any:  # noqa: ANN401  a Response
            for edit in outcome.edits:
                edit(answer)
            return answer

        answer_aside(broker, request, outcome.refused, make)


def _has_no_answer(request: Request) -> bool:
    return request.header.api_key == ApiKey.PRODUCE and getattr(request.message, "acks", 1) == 0


def _refuse_all(broker: Broker, request: Request, error: ErrorCode) -> None:
    if _has_no_answer(request):
        request.reply.close(TEXTS[error])
    else:
        things = len(request.frame) // BYTES_OF_A_THING
        refuse(broker, request, error, TEXTS[error], things)


# -- what the table says plainly -------------------------------------------------------------------


def check_needs(
    needs: Iterable[Need], broker: Broker, request: Request, access: Access
) -> Deciding:
    """Those of the whole request first, as in Kafka."""
    message: Any = request.message
    for need in needs:
        if not need.each:
            name = getattr(message, need.field) if need.field else CLUSTER_NAME
            if name is not None and not access.may(need.operation, need.resource, name):
                return Outcome(None, DENIED[need.resource])
    outcome = Outcome(message)
    for need in needs:
        if need.each:
            outcome = yield from _each(need, request.header.api_key, outcome, access)
    return outcome


def _each(need: Need, key: int, outcome: Outcome, access: Access) -> Deciding:
    error = DENIED[need.resource]

    def judge(one: Any) -> ErrorCode:  # noqa: ANN401  an item of any request
        name = one if need.item == PLAIN else getattr(one, need.item)
        may = access.may(need.operation, need.resource, name or "")
        return ErrorCode.NONE if may else error

    return sort_out(outcome, named(key, need.field), judge)


def named(key: int, field: str) -> Named:
    """How the answer of an API says what it says about the items of this field."""
    return next(row for row in NAMED[key] if row.asked == field)


def sort_out(outcome: Outcome, row: Named, judge: Callable[[Any], ErrorCode]) -> Deciding:
    """Take those items out of the request that `judge` has an error for."""
    message = outcome.message
    if message is None:
        return outcome
    items = getattr(message, row.asked) or ()
    allowed: list[Any] = []
    rows: list[Any] = []
    denied = False
    for start in range(0, len(items), PIECE):
        if start:
            yield
        refused: dict[ErrorCode, list[Any]] = {}
        for one in items[start : start + PIECE]:
            error = judge(one)
            (allowed if error is ErrorCode.NONE else refused.setdefault(error, [])).append(one)
        for error, some in refused.items():
            denied = True
            part = attrs.evolve(message, **{row.asked: some})
            rows += row.refusals(part, error, TEXTS[error])
    if not denied:
        return outcome

    def add(answer: Any) -> None:  # noqa: ANN401  a Response
        setattr(answer, row.answered, [*(getattr(answer, row.answered) or ()), *rows])

    left = attrs.evolve(message, **{row.asked: allowed}) if allowed else None
    return Outcome(left, edits=(*outcome.edits, add), refused=outcome.refused + len(rows))
