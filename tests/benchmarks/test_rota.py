"""Systems side by side take turns, in rounds whose order alternates."""

import trio

from benchmarks.turns import Turns


async def order_of(turns: dict[int, int]) -> str:
    """Who had a turn, one after the other, if each seat wants that many."""
    rota = Turns(len(turns))
    order: list[str] = []
    loading = 0

    async def sit(seat: int, wanted: int) -> None:
        nonlocal loading
        for _ in range(wanted):
            async with rota.turn(seat):
                loading += 1
                assert loading == 1, "one at a time"
                await trio.testing.wait_all_tasks_blocked()
                order.append("ABC"[seat])
                loading -= 1
        await rota.leave(seat)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for seat, wanted in turns.items():
                nursery.start_soon(sit, seat, wanted)
    return "".join(order)


async def test_the_order_of_two_alternates() -> None:
    assert await order_of({0: 4, 1: 4}) == "ABBAABBA"


async def test_one_alone_waits_for_nobody() -> None:
    assert await order_of({0: 3}) == "AAA"


async def test_who_is_done_is_not_waited_for() -> None:
    assert await order_of({0: 1, 1: 4, 2: 2}) == "ABCCBBB"


async def test_who_fails_in_its_turn_does_not_stop_the_others() -> None:
    rota = Turns(2)
    done = []

    async def fails() -> None:
        try:
            async with rota.turn(0):
                raise RuntimeError("no measurement")
        except RuntimeError:
            await rota.leave(0)

    async def goes_on() -> None:
        for _ in range(3):
            async with rota.turn(1):
                done.append(1)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_on)
            nursery.start_soon(fails)
    assert done == [1, 1, 1]
