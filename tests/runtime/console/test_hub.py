"""One loop for all watchers: nothing queues, and nothing is done while nobody watches."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from runtime.console.changes import applied
from runtime.console.hub import (
    AFTER_BUG_S,
    EVERY_S,
    HEARTBEAT_S,
    SOONEST_S,
    WATCHERS_MAX,
    Hub,
    Sections,
    Source,
    TooMany,
)


class World:
    """A source whose state is a number."""

    def __init__(self) -> None:
        self.value = 0
        self.began = self.ended = 0
        self.bugs: list[tuple[str, Exception]] = []
        self.fails = False
        self.stalls = False
        source = Source(
            begin=self._begin,
            render=self._render,
            news=lambda: {"1": [[self.value]]},
            samples=lambda: {"1": [[n] for n in range(self.value + 1)]},
            end=self._end,
        )
        self.hub = Hub(source, lambda *bug: self.bugs.append(bug))

    async def _begin(self) -> None:
        self.began += 1

    def _end(self) -> None:
        self.ended += 1

    async def _render(self, before: Sections) -> Sections:
        if self.fails:
            raise KeyError("a bug")
        if self.stalls:
            await trio.sleep_forever()
        self.value += 1
        return {"value": self.value, "same": {"a": 1}}


class Watcher:
    """Reads events and keeps the state they make, as the page does."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.sections: dict[str, Any] = {}
        self.wholes = self.changes = 0
        self.number = -1
        self.scope = trio.CancelScope()
        self.reads = trio.Event()
        self.reads.set()

    async def send(self, piece: bytes) -> None:
        await self.reads.wait()
        self.pieces.append(piece)
        if not piece.startswith(b"event: "):
            return
        head, data = piece.decode().rstrip("\n").split("\n")
        told = json.loads(data.removeprefix("data: "))
        if head == "event: all":
            self.sections, self.wholes = told["all"], self.wholes + 1
        elif head == "event: change":
            assert told["number"] == self.number + 1, "nothing was missed"
            self.sections, self.changes = applied(self.sections, told["change"]), self.changes + 1
        self.number = told.get("number", -1)

    async def watch(self, hub: Hub) -> None:
        with self.scope:
            await hub.admit()(self.send)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.hub.run)
        yield nursery
        nursery.cancel_scope.cancel()


async def test_nothing_is_done_while_nobody_watches(autojump_clock: MockClock) -> None:
    world = World()
    async with running(world) as nursery:
        await trio.sleep(100)
        assert (world.hub.frames, world.began) == (0, 0)
        watcher = Watcher()
        nursery.start_soon(watcher.watch, world.hub)
        await trio.sleep(10 * EVERY_S + 0.01)
        assert world.hub.frames == 11
        watcher.scope.cancel()
        await trio.sleep(2 * EVERY_S)
        made = world.hub.frames
        await trio.sleep(100)
        assert world.hub.frames == made
        assert (world.began, world.ended) == (1, 1)


async def test_a_watcher_gets_all_of_it_and_then_what_changes(autojump_clock: MockClock) -> None:
    world, watcher, late = World(), Watcher(), Watcher()
    async with running(world) as nursery:
        nursery.start_soon(watcher.watch, world.hub)
        await trio.sleep(5 * EVERY_S + 0.01)
        nursery.start_soon(late.watch, world.hub)
        await trio.sleep(5 * EVERY_S)
        assert watcher.sections == late.sections == {"value": world.value, "same": {"a": 1}}
        assert (watcher.wholes, watcher.changes) == (1, 10)
        assert (late.wholes, late.changes) == (1, 5)
        change = json.loads(watcher.pieces[-1].decode().split("data: ")[1])["change"]
        assert change == {"value": {"=": world.value}}, "what is the same is not told again"
        assert watcher.pieces[-1] is late.pieces[-1], "the same bytes for everybody"


async def test_who_cannot_keep_up_gets_all_of_it_again_and_holds_up_nobody(
    autojump_clock: MockClock,
) -> None:
    world, slow, quick = World(), Watcher(), Watcher()
    async with running(world) as nursery:
        nursery.start_soon(slow.watch, world.hub)
        nursery.start_soon(quick.watch, world.hub)
        await trio.sleep(2 * EVERY_S + 0.01)
        slow.reads = trio.Event()
        await trio.sleep(10 * EVERY_S)
        assert quick.changes == 12
        assert slow.changes == 2
        slow.reads.set()
        await trio.sleep(2 * EVERY_S)
        assert slow.sections == quick.sections
        assert slow.wholes == 2


async def test_a_new_master_is_shown_sooner_but_not_too_often(autojump_clock: MockClock) -> None:
    world, watcher = World(), Watcher()
    async with running(world) as nursery:
        nursery.start_soon(watcher.watch, world.hub)
        await trio.sleep(SOONEST_S + 0.01)
        world.hub.hurry()
        await wait_all_tasks_blocked()
        assert world.hub.frames == 2
        for _ in range(100):
            world.hub.hurry()
            await trio.sleep(EVERY_S / 100)
        assert world.hub.frames <= 2 + EVERY_S / SOONEST_S + 1


async def test_there_are_so_many_places_and_no_more(autojump_clock: MockClock) -> None:
    world = World()
    watchers = [Watcher() for _ in range(WATCHERS_MAX)]
    async with running(world) as nursery:
        for one in watchers:
            nursery.start_soon(one.watch, world.hub)
        await wait_all_tasks_blocked()
        with pytest.raises(TooMany):
            world.hub.admit()
        watchers[0].scope.cancel()
        await wait_all_tasks_blocked()
        world.hub.admit()


async def test_a_silent_hub_says_that_it_is_there(autojump_clock: MockClock) -> None:
    """A state that takes long to make must not look like a dead connection."""
    world, watcher = World(), Watcher()
    world.stalls = True
    async with running(world) as nursery:
        nursery.start_soon(watcher.watch, world.hub)
        await trio.sleep(3 * HEARTBEAT_S + 1)
        assert watcher.pieces[1:] == [b": still here\n\n"] * 3


async def test_a_stopping_node_says_goodbye_and_does_not_wait_for_who_does_not_read(
    autojump_clock: MockClock,
) -> None:
    world, watcher, slow = World(), Watcher(), Watcher()
    async with running(world) as nursery:
        nursery.start_soon(watcher.watch, world.hub)
        nursery.start_soon(slow.watch, world.hub)
        await trio.sleep(EVERY_S / 2)
        slow.reads = trio.Event()
        began = trio.current_time()
        await world.hub.close()
        assert trio.current_time() - began <= 1
        assert watcher.pieces[-1] == b"event: bye\ndata: {}\n\n"
        with pytest.raises(TooMany):
            world.hub.admit()


async def test_a_bug_in_a_picture_is_told_and_costs_some_seconds(
    autojump_clock: MockClock,
) -> None:
    world, watcher = World(), Watcher()
    async with running(world) as nursery:
        nursery.start_soon(watcher.watch, world.hub)
        await trio.sleep(3 * EVERY_S + 0.01)
        world.fails = True
        await trio.sleep(2 * EVERY_S)
        world.fails = False
        assert [what for what, _ in world.bugs] == ["console"]
        await trio.sleep(AFTER_BUG_S + 2 * EVERY_S)
        assert watcher.sections["value"] == world.value
        assert world.began == 2
