"""The life of the library's own tasks: in a nursery that belongs to one `async with` of the user.

It hides two effects of a plain nursery from users. An exception in the body of the `async with`
comes out as it is, not wrapped in a group. A failure of one of our tasks (which is a bug: all
expected failures are values there) still ends the body and is raised.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

import trio

from evenkeel.errors import ClosedError

T = TypeVar("T")


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the body ends, however it ends, and not before.

    This holds even when the body is being cancelled: its cleanup (commit, leave the group) needs
    the connections, which are such tasks.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as outer:
        nursery = await outer.start(_host)
        try:
            yield nursery
        except Exception as error:  # noqa: BLE001 (raised below, outside the nursery's group)
            failure = error
        finally:
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _host(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.shield = True
        task_status.started(nursery)
        await trio.sleep_forever()


class Scoped(ABC, Generic[T]):
    """`async with` for a class that opens and closes itself in one generator, once."""

    def __init__(self) -> None:
        self._manager: AbstractAsyncContextManager[T] | None = None
        self._open = False

    @abstractmethod
    def _lifetime(self) -> AbstractAsyncContextManager[T]:
        """Opens and closes the object; every subclass has its own."""

    def _check_open(self) -> None:
        if not self._open:
            name = type(self).__name__
            why = "it is closed" if self._manager is not None else "it was not opened"
            raise ClosedError(f"cannot use this {name}", why=why, advice=f"async with {name}(...)")

    async def __aenter__(self) -> Self:
        if self._manager is not None:
            raise ClosedError(f"this {type(self).__name__} was used before", advice="make another")
        self._manager = self._lifetime()
        await self._manager.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._manager is not None
        self._open = False
        return await self._manager.__aexit__(kind, error, traceback)
