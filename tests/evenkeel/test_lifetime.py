"""The library's tasks live exactly as long as the body of its `async with`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from evenkeel.errors import ClosedError
from evenkeel.lifetime import Scoped, background


async def test_what_the_body_raises_comes_out_as_it_is() -> None:
    ended = []

    async def task() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    async def body() -> None:
        async with background() as nursery:
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await body()
    assert ended


async def test_a_task_that_fails_ends_the_body() -> None:
    """Its failure is a bug of ours, and must not be lost."""

    async def task() -> None:
        raise RuntimeError("a bug")

    async def body() -> None:
        async with background() as nursery:
            nursery.start_soon(task)
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught, trio.fail_after(5):
        await body()
    assert caught.group_contains(RuntimeError, match="a bug")


async def test_tasks_outlive_the_cancellation_of_the_body() -> None:
    """So the body can still say goodbye through them."""
    order: list[str] = []

    async def task() -> None:
        try:
            await trio.sleep_forever()
        finally:
            order.append("task ended")

    with trio.CancelScope() as scope:
        async with background() as nursery:
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(1, shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                    order.append("goodbye")
    assert order == ["goodbye", "task ended"]
    assert scope.cancelled_caught


class Thing(Scoped["Thing"]):
    def _lifetime(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return self._run()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator["Thing"]:
        yield self

    def use(self) -> str:
        self._check_open()
        return "used"


async def test_a_thing_is_used_inside_and_once() -> None:
    thing = Thing()
    with pytest.raises(ClosedError, match=r"not opened \(async with Thing"):
        thing.use()
    async with thing:
        assert thing.use() == "used"
        with pytest.raises(ClosedError, match="used before"):
            await thing.__aenter__()
    with pytest.raises(ClosedError, match="it is closed"):
        thing.use()


def test_a_class_without_a_lifetime_cannot_be_made() -> None:
    """Not when it is first used, which may be much later."""
    forgetful: type = type("Forgetful", (Scoped,), {})
    with pytest.raises(TypeError, match="abstract method _lifetime"):
        forgetful()
