"""Isolating one request's failures from all others, and joining several answers into one."""

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from broker.requests.context import Broker
from broker.requests.request import Request
from wire.apis import APIS

P = ParamSpec("P")
T = TypeVar("T")


def report_bug(broker: Broker, request: Request, error: Exception) -> None:
    """Log an exception that is our bug, and close the connection that caused it."""
    header = request.header
    name = APIS[header.api_key].name
    broker.on_bug(f"{name} v{header.api_version} from {request.client_host}", error)
    request.reply.close(f"internal error: {type(error).__name__}")


def guarded(broker: Broker, request: Request, act: Callable[P, None]) -> Callable[P, None]:
    """`act`, to be called later by a caller that its exceptions must not reach."""

    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(broker, request, error)

    return run


def gather(count: int, act: Callable[[Sequence[T]], None]) -> Callable[[int, T], None]:
    """Collect `count` answers, each put with its index; `act` gets all of them in order, once."""
    answers: dict[int, T] = {}

    def put(index: int, answer: T) -> None:
        assert 0 <= index < count
        assert index not in answers
        answers[index] = answer
        if len(answers) == count:
            act([answers[at] for at in range(count)])

    if count == 0:
        act([])
    return put
