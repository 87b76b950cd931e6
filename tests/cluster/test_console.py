"""The console as users see it: a real browser, three real nodes, and a Kafka client's load.

With CONSOLE_PICTURES=FOLDER, pictures of the pages are kept there to look at.
"""

import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cluster import health
from cluster.launcher import Launcher
from tests.cluster.browser import CHROMIUM, DRIVER, Browser, browser
from tests.cluster.scenery import (
    GROUPS,
    STEP_S,
    TOPIC,
    acknowledged,
    in_thread,
    load,
    three_nodes,
    until,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not CHROMIUM or not DRIVER,
        reason="needs Debian's chromium and chromium-driver",
    ),
]

HOSTILE = "<img src=x onerror=alert(1)>"
"""A name that a user may give a consumer group."""
NOT_YET = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
SHAPES = {"phone": (360, 740), "desktop": (1280, 900)}
MASTERS = """
const masters = {};
for (const one of document.querySelectorAll("#map .group")) {
  const said = one.getAttribute("aria-label").match(/master node (\\d+)/);
  masters[one.dataset.group] = said ? Number(said[1]) : null;
}
return masters;
"""
"""The masters as the map tells them to users who cannot see it ..."""
FILLED = """
const filled = {};
for (const one of document.querySelectorAll("#map .group")) {
  const cell = one.querySelector(".cell.master");
  filled[one.dataset.group] = cell ? Number(cell.textContent.replace("?", "")) : null;
}
return filled;
"""
"""... and as it draws them for those who can."""
TOO_WIDE = "return document.documentElement.scrollWidth - innerWidth"
UNNAMED = """
return [...document.querySelectorAll("button, input, select, [role=img]")]
  .filter((one) => !one.hidden && one.checkVisibility() && !one.closest("dialog:not([open])"))
  .filter((one) => !(one.getAttribute("aria-label") || one.innerText || one.labels?.length))
  .map((one) => one.outerHTML);
"""


def shown(page: Browser) -> dict[int, int | None]:
    told = page.run(MASTERS)
    assert told == page.run(FILLED) or not told
    return {int(group): master for group, master in told.items()}


async def sees(page: Browser, what: str, masters: dict[int, int | None]) -> None:
    await in_thread(partial(page.until, what, lambda: page.run(MASTERS) == _json(masters)))
    assert await in_thread(partial(shown, page)) == masters


def _json(masters: dict[int, int | None]) -> dict[str, int | None]:
    return {str(group): master for group, master in masters.items()}


async def pictures(page: Browser, tmp_path: Path, name: str) -> None:
    """All screen shapes in both schemes: nothing overflows, and everything has an accessible
    name."""
    folder = Path(os.environ.get("CONSOLE_PICTURES", tmp_path))
    for shape, size in SHAPES.items():
        for scheme in ("light", "dark"):
            page.shape(*size, dark=scheme == "dark")
            page.run("scrollTo({top: 0, behavior: 'instant'})")
            await trio.sleep(0.3)
            path = folder / f"{name}-{shape}-{scheme}.png"
            await in_thread(partial(page.picture, path, whole=True))
            assert path.stat().st_size > 10_000
            assert page.run(TOO_WIDE) <= 0, f"{name}: wider than {size[0]} px"
    assert page.run(UNNAMED) == []
    page.shape(*SHAPES["desktop"], dark=False)


def commit(bootstrap: str) -> None:
    """A consumer group whose name is markup has committed an offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": HOSTILE})
    until = time.monotonic() + STEP_S
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
            break
        except KafkaException as error:  # librdkafka does not wait for a coordinator that loads
            if error.args[0].code() not in NOT_YET or time.monotonic() > until:
                raise
        time.sleep(0.1)
    consumer.close()


async def test_the_map_shows_the_masters_live_and_moves_one_by_keyboard(tmp_path: Path) -> None:
    """What a user sees and does on the page of node 1; then a node dies."""
    with browser(tmp_path) as page:
        async with three_nodes(tmp_path) as cluster, load(cluster, "console", rate=300) as producer:
            await in_thread(partial(commit, cluster.spec.bootstrap))
            origin = f"http://{cluster.spec.node(1).http}"
            await in_thread(partial(page.open, f"{origin}/"))  # which redirects to /console/
            view = await until(cluster, lambda view: view.all_at_ideal, "masters are even")
            await sees(page, "the masters", view.masters())
            await acknowledged(producer, 10)
            await tables(page)

            everything = dict.fromkeys(range(GROUPS + 1), 2)
            await health.place(cluster.spec.node(3).http, {"all_on": 2})
            await sees(page, "all masters stolen, without a reload", everything)

            moved = await move_by_keyboard(page)
            view = await until(
                cluster,
                lambda view: (
                    Counter(view.masters().values()) == {2: GROUPS, view.masters()[moved]: 1}
                ),
                "one group has moved, and no other",
            )
            await sees(page, "the group moved", view.masters())
            assert "pinned" in page.run(
                "return document.querySelector(arguments[0]).ariaLabel", f'[data-group="{moved}"]'
            )
            await balancer_buttons(page, cluster)
            assert page.complaints() == []
            await cluster.kill(2)
            state = "return document.querySelector('#node-2 ~ .state').textContent"
            await in_thread(
                partial(page.until, "node 2 is down", lambda: "✕ down" in page.run(state))
            )
            view = await until(
                cluster,
                lambda view: (
                    None not in view.masters().values() and 2 not in view.masters().values()
                ),
                "others took over",
            )
            await sees(page, "the new masters", view.masters())
            await pictures(page, tmp_path, "down")
            assert page.complaints() == []
            assert page.origins() == {origin}, "nobody else was asked for anything"


async def tables(page: Browser) -> None:
    """Topics, and consumer groups with their lag; a row opens; a hostile name stays plain text."""

    def text(selector: str) -> str:
        return str(page.run("return document.querySelector(arguments[0])?.innerText", selector))

    def found() -> bool:
        return HOSTILE in text("#consumers tbody") and "6" in text("#topics tbody")

    await in_thread(partial(page.until, "topics and consumer groups", found))
    assert page.run("return document.querySelector('#consumers img')") is None
    assert TOPIC in text("#topics tbody")
    page.run("document.querySelector('#consumers .open').click()")

    def offsets() -> bool:
        row = text("#consumers .detail tbody tr").replace(",", "").split()
        return row[:3] == [TOPIC, "0", "1"] and row[4].isdigit() and int(row[3]) - int(row[4]) == 1

    await in_thread(partial(page.until, "the group's offsets and its lag", offsets))
    page.run("document.querySelector('#topics .open').click()")
    await in_thread(
        partial(page.until, "partitions", lambda: "Next offset" in text("#topics .detail"))
    )


async def move_by_keyboard(page: Browser) -> int:
    """Without a mouse: to the map, along it, into a group and back; then the move itself."""

    def steps() -> int:
        page.tab_to("#map .group")
        page.press("Home", "Right", "Right", "Right")
        assert page.focused().startswith("Paxos group 3: ")
        page.press("Enter")
        assert page.run("return document.querySelector('#dialog').open")
        assert page.focused() == "Close"
        page.tab_to("#dialog-body button")
        assert page.focused() == "Move…"
        page.press("Enter")
        is_asked = "return document.querySelector('#dialog-title').textContent"
        page.until("the question", lambda: page.run(is_asked) == "Move Paxos group 3?")
        page.press("Escape")
        is_open = "return document.querySelector('#dialog').open"
        assert not page.run(is_open)
        assert page.focused().startswith("Paxos group 3"), "the focus is where it was"

        page.press("Enter")
        page.tab_to("#dialog-body button")
        page.press("Enter")
        page.until("the question", lambda: page.run(is_asked) == "Move Paxos group 3?")
        page.tab_to("#dialog-ok")
        assert page.focused() == "Move and pin"
        page.press("Enter")
        page.until("it is done", lambda: not page.run(is_open))
        assert "moves to node" in page.run("return document.querySelector('#told').textContent")
        return 3

    return await in_thread(steps)


async def balancer_buttons(page: Browser, cluster: Launcher) -> None:
    """A dry run that is not adopted; a pause, and its end."""
    is_open = "return document.querySelector('#dialog').open"
    told = "return document.querySelector('#dialog').innerText"
    banner = "return document.querySelector('#banners').innerText"

    def dry_run() -> None:
        page.run("document.querySelector('#dry-run').focus()")
        page.press("Enter")
        page.until("a plan", lambda: "even by count" in page.run(told))
        page.press("Escape")
        assert not page.run(is_open)
        assert page.focused() == "Dry run…"

    def press_pause(verb: str) -> None:
        page.tab_to("#pause")
        page.press("Enter")
        page.tab_to("#dialog-ok")
        assert page.focused() == verb
        page.press("Enter")
        page.until("it is done", lambda: not page.run(is_open))

    await in_thread(dry_run)
    await in_thread(partial(press_pause, "Pause"))
    await in_thread(partial(page.until, "the banner", lambda: "paused" in page.run(banner)))
    shown = await health.call_async(cluster.spec.node(3).http, "GET", "/balancer")
    assert shown["paused"]
    await in_thread(partial(press_pause, "Resume"))
    await in_thread(partial(page.until, "no banner", lambda: not page.run(banner).strip()))
